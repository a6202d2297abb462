#include "cuda/eigh/paths.h"

#include <complex>
#include <vector>

#include "cuda/eigh/cusolver/orthogonality.cuh"
#include "cuda/eigh/sign.cuh"
#include "cuda/launch/cusolver.h"
#include "cuda/memory.cuh"
#include "cuda/plan.h"
#include "cuda/threads.cuh"
#include "formulas/order.h"
#include "formulas/scale.h"
#include "instantiate.h"
#include "keel/error.h"

namespace keel::cuda {

namespace {

constexpr const char* kName = "keel::eigh";
constexpr int kThreads = 256, kTile = 32;

/// A complex number is read as its real and imaginary parts, one after the other.
template <typename E>
constexpr int kParts = kIsComplex<E> ? 2 : 1;

/// The largest magnitude of each matrix's lower triangle, or infinity if an entry is not finite. Of
/// complex entries, that of their parts; the imaginary parts of the diagonal are not read.
/// Independent of the order of arrival (memory.cuh).
template <typename E, typename T = RealOf<E>>
__global__ void measure(Matrices<const E> matrices, int slices, Bits<T>* largest) {
  const std::int64_t index = blockIdx.x / slices, n = matrices.n;
  const T* const source = reinterpret_cast<const T*>(matrices[index]);
  T size = 0;
  for (std::int64_t r = blockIdx.x % slices; r < n; r += slices)
    for (std::int64_t c = threadIdx.x; c <= kParts<E> * r; c += kThreads)
      size = fmax(size, UnitScale<T>::magnitude(source[kParts<E> * r * matrices.row_stride + c]));
  size = Lanes<32>::largest(size);
  if (threadIdx.x % 32 == 0) atomicMax(largest + index, as_bits(size));
}

/// Prepares the input of cuSOLVER: lower triangles scaled to unit size, or zeros if a matrix is not
/// finite. `exponent` receives the power of two that was taken out. Matrices beyond the batch are
/// padding: zeros.
template <typename E, typename T = RealOf<E>>
__global__ void prepare(Matrices<const E> matrices, int slices, const Bits<T>* largest, E* copy,
                        int* exponent, bool* finite) {
  const std::int64_t index = blockIdx.x / slices, n = matrices.n;
  T* const target = reinterpret_cast<T*>(copy + index * n * n);
  const bool exists = index < matrices.batch;
  const T size = exists ? from_bits(largest[index]) : std::numeric_limits<T>::infinity();
  const T* const source = reinterpret_cast<const T*>(matrices[exists ? index : 0]);
  const bool good = size <= std::numeric_limits<T>::max();
  int power = 0;
  if (good) frexp(size, &power);
  for (std::int64_t r = blockIdx.x % slices; r < n; r += slices)
    for (std::int64_t c = threadIdx.x; c < kParts<E> * (r + 1); c += kThreads)
      target[kParts<E> * r * n + c] =
          good && c <= kParts<E> * r
              ? ldexp(source[kParts<E> * r * matrices.row_stride + c], -power)
              : T(0);
  if (threadIdx.x == 0 && exists && blockIdx.x % slices == 0) {
    exponent[index] = power;
    finite[index] = good;
  }
}

/// Finds the entry of largest magnitude of a complex vector (the first one, if several tie), and makes
/// it real and positive. `good` is false for NaN. A warp does this.
template <typename T>
__device__ void fix_phase(std::int64_t n, T* vector, int lane, bool good) {
  LargestEntry<T> largest;
  for (std::int64_t r = lane; r < n; r += 32) {
    const T x = vector[2 * r], y = vector[2 * r + 1];
    largest.offer(fma(x, x, y * y), int(r));
  }
  largest.share(32);
  const T peak = sqrt(largest.magnitude), c = vector[2 * largest.row] / peak,
          d = -vector[2 * largest.row + 1] / peak;
  __syncwarp();
  for (std::int64_t r = lane; r < n; r += 32) {
    const T x = vector[2 * r], y = vector[2 * r + 1];
    const bool is_peak = r == largest.row;
    vector[2 * r] = !good ? T(NAN) : is_peak ? peak : fma(x, c, -y * d);
    vector[2 * r + 1] = !good ? T(NAN) : is_peak ? T(0) : fma(x, d, y * c);
  }
}

/// Computes for every vector (a row of `rows`, ascending) the sign that makes its entry of largest
/// magnitude (the first one, if several tie) positive. Complex vectors get their phase at once.
/// Stores the values in order, scaled back. One warp per vector. Without rows it does only the
/// values.
template <typename E, typename T = RealOf<E>>
__global__ void finish_values(std::int64_t batch, std::int64_t n, const T* ascending, T* rows,
                              const int* exponent, const bool* finite, const int* information,
                              EighOrder order, T* values, T* sign, EighStatus* status) {
  const std::int64_t at = (std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  const int lane = threadIdx.x % 32;
  if (at >= batch * n) return;
  const std::int64_t index = at / n, i = at % n;
  const bool converged = information[index] == 0, good = finite[index] && converged;
  if (rows != nullptr) {
    if constexpr (kIsComplex<E>) {
      fix_phase(n, rows + 2 * at * n, lane, good);
    } else {
      LargestEntry<T> largest;
      for (std::int64_t r = lane; r < n; r += 32) largest.offer(rows[at * n + r], int(r));
      largest.share(32);
      if (lane == 0) sign[at] = !good ? T(NAN) : (largest.entry < 0 ? T(-1) : T(1));
    }
  }
  if (lane != 0) return;
  values[index * n + place_in(order, n, n - 1 - i)] =
      good ? ldexp(ascending[at], exponent[index]) : T(NAN);
  if (i == 0 && status != nullptr)
    status[index] = good        ? EighStatus::converged
                    : converged ? EighStatus::not_finite
                                : EighStatus::not_converged;
}

/// vectors = rows, with signs, transposed and in the requested order. Complex rows are those of the
/// conjugate matrix, whose lower triangle cuSOLVER has read as an upper one.
template <typename E, typename T = RealOf<E>>
__global__ void finish_vectors(std::int64_t n, const T* rows, const T* sign, EighOrder order,
                               Matrices<E> vectors) {
  using Entry = Pack<T, kParts<E>>;
  __shared__ Entry tile[kTile][kTile + 1];
  const std::int64_t tiles = (n + kTile - 1) / kTile;
  const std::int64_t index = blockIdx.x / (tiles * tiles), which = blockIdx.x % (tiles * tiles);
  const std::int64_t first = which / tiles * kTile, top = which % tiles * kTile;
  const Entry* const source = reinterpret_cast<const Entry*>(rows) + index * n * n;
  for (int k = threadIdx.y; k < kTile; k += blockDim.y) {
    const std::int64_t c = first + k, r = top + threadIdx.x;  // column, row
    if (c < n && r < n) {
      const std::int64_t i = n - 1 - place_in(order, n, c);
      if constexpr (kIsComplex<E>)
        tile[k][threadIdx.x] = {source[i * n + r].at[0] + T(0), T(0) - source[i * n + r].at[1]};
      else
        tile[k][threadIdx.x].at[0] = source[i * n + r].at[0] * sign[index * n + i] + T(0);
    }
  }
  __syncthreads();
  Entry* const target = reinterpret_cast<Entry*>(vectors[index]);
  for (int k = threadIdx.y; k < kTile; k += blockDim.y) {
    const std::int64_t r = top + k, c = first + threadIdx.x;
    if (c < n && r < n) target[r * vectors.row_stride + c] = tile[threadIdx.x][k];
  }
}

/// Complex rows as real ones of twice the length, two for each: (x, y), and (-y, x), which is the row
/// times i.
template <typename T>
struct ToReal {
  const T* rows;
  Matrices<T> real;
  __device__ void operator()(std::int64_t b, std::int64_t i, std::int64_t j) const {
    const std::int64_t n = real.n / 2;
    const T* const entry = rows + 2 * ((b * n + i / 2) * n + j / 2);
    real[b][i * real.row_stride + j] = i % 2 == j % 2 ? entry[0]
                                       : i % 2 == 0   ? entry[1]
                                                      : -entry[1];
  }
};
/// The way back. Every second row is one.
template <typename T>
struct FromReal {
  Matrices<T> real;
  T* rows;
  __device__ void operator()(std::int64_t b, std::int64_t i, std::int64_t j) const {
    if (i % 2 == 0)
      rows[(b * (real.n / 2) + i / 2) * real.n + j] = real[b][i * real.row_stride + j];
  }
};

template <typename T>
void restore_orthogonality(const char* operation, Matrices<std::complex<T>> rows,
                           const Stream& stream) {
  const std::int64_t batch = rows.batch, twice = 2 * rows.n;
  const Scratch<T> memory(operation, stream, batch * twice * twice);
  const auto real = contiguous<T>(memory, batch, twice);
  T* const numbers = reinterpret_cast<T*>(rows.data);
  large::for_each_entry(operation, stream, batch, twice, ToReal<T>{numbers, real});
  keel::cuda::restore_orthogonality<T>(operation, real, stream);
  large::for_each_entry(operation, stream, batch, twice, FromReal<T>{real, numbers});
}

}  // namespace

template <typename E>
void eigh_cusolver(Matrices<const E> matrices, RealOf<E>* values, Matrices<E> vectors,
                   EighOrder order, EighStatus* status, const Stream& stream) {
  using T = RealOf<E>;
  const std::int64_t n = matrices.n, batch = matrices.batch;
  const bool has_vectors = vectors.data != nullptr;
  const cudaStream_t queue = native(stream);
  // Only the batched path can be captured in a graph: the other one may involve the host.
  const std::int64_t padded =
      batch < 2 && (n < kFastAlone || is_capturing(kName, stream)) ? 2 : batch;
  const Cusolver& solver = cusolver(kName, stream);
  Scratch<E> rows(kName, stream, padded * n * n);
  Scratch<T> ascending(kName, stream, padded * n),
      sign(kName, stream, has_vectors && !kIsComplex<E> ? batch * n : 0);
  Scratch<int> exponent(kName, stream, batch), information(kName, stream, padded);
  Scratch<bool> finite(kName, stream, batch);
  Scratch<Bits<T>> largest(kName, stream, batch);
  const int slices = cusolver_slices(batch);
  check(kName, cudaMemsetAsync(largest, 0, std::size_t(batch) * sizeof(T), queue));
  measure<E, T><<<unsigned(batch * slices), kThreads, 0, queue>>>(matrices, slices, largest);
  check_launch(kName);
  prepare<E, T><<<unsigned(padded * slices), kThreads, 0, queue>>>(matrices, slices, largest, rows,
                                                                   exponent, finite);
  check_launch(kName);

  // The rows of a lower triangle are the columns of an upper one.
  const auto job = has_vectors ? CUSOLVER_EIG_MODE_VECTOR : CUSOLVER_EIG_MODE_NOVECTOR;
  constexpr auto triangle = CUBLAS_FILL_MODE_UPPER;
  std::size_t device_bytes = 0, host_bytes = 0;
  check(kName,
        cusolverDnXsyevBatched_bufferSize(solver.handle, solver.parameters, job, triangle, n,
                                          kCusolverType<E>, rows, n, kCusolverType<T>, ascending,
                                          kCusolverType<E>, &device_bytes, &host_bytes, padded));
  {
    Scratch<unsigned char> workspace(kName, stream, std::int64_t(device_bytes));
    std::vector<unsigned char> host_workspace(host_bytes);
    check(kName, cusolverDnXsyevBatched(solver.handle, solver.parameters, job, triangle, n,
                                        kCusolverType<E>, rows, n, kCusolverType<T>, ascending,
                                        kCusolverType<E>, workspace, device_bytes,
                                        host_workspace.data(), host_bytes, information, padded));
  }
  if (has_vectors) restore_orthogonality<T>(kName, contiguous<E>(rows, batch, n), stream);

  T* const given = has_vectors ? reinterpret_cast<T*>(static_cast<E*>(rows)) : nullptr;
  finish_values<E, T><<<unsigned((batch * n * 32 + kThreads - 1) / kThreads), kThreads, 0, queue>>>(
      batch, n, ascending, given, exponent, finite, information, order, values, sign, status);
  check_launch(kName);
  if (!has_vectors) return;
  const std::int64_t tiles = (n + kTile - 1) / kTile;
  finish_vectors<E, T><<<unsigned(batch * tiles * tiles), dim3(kTile, 8), 0, queue>>>(
      n, given, sign, order, vectors);
  check_launch(kName);
}

#define KEEL_STAGES(T) KEEL_STAGE(eigh_cusolver, T)
KEEL_FOR_REAL(KEEL_STAGES)
KEEL_FOR_COMPLEX(KEEL_STAGES)
#undef KEEL_STAGES

}  // namespace keel::cuda
