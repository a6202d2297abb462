#include "cuda/eigh/paths.h"

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

/// The largest magnitude of each matrix's lower triangle, or infinity if an entry is not finite.
/// Independent of the order of arrival (memory.cuh).
template <typename T>
__global__ void measure(Matrices<const T> matrices, int slices, Bits<T>* largest) {
  const std::int64_t index = blockIdx.x / slices, n = matrices.n;
  const T* const source = matrices[index];
  T size = 0;
  for (std::int64_t r = blockIdx.x % slices; r < n; r += slices)
    for (std::int64_t c = threadIdx.x; c <= r; c += kThreads)
      size = fmax(size, UnitScale<T>::magnitude(source[r * matrices.row_stride + c]));
  size = Lanes<32>::largest(size);
  if (threadIdx.x % 32 == 0) atomicMax(largest + index, as_bits(size));
}

/// Prepares the input of cuSOLVER: lower triangles scaled to unit size, or zeros if a matrix is not
/// finite. `exponent` receives the power of two that was taken out. Matrices beyond the batch are
/// padding: zeros.
template <typename T>
__global__ void prepare(Matrices<const T> matrices, int slices, const Bits<T>* largest, T* copy,
                        int* exponent, bool* finite) {
  const std::int64_t index = blockIdx.x / slices, n = matrices.n;
  T* const target = copy + index * n * n;
  const bool exists = index < matrices.batch;
  const T size = exists ? from_bits(largest[index]) : std::numeric_limits<T>::infinity();
  const T* const source = matrices[exists ? index : 0];
  const bool good = size <= std::numeric_limits<T>::max();
  int power = 0;
  if (good) frexp(size, &power);
  for (std::int64_t r = blockIdx.x % slices; r < n; r += slices)
    for (std::int64_t c = threadIdx.x; c <= r; c += kThreads)
      target[r * n + c] = good ? ldexp(source[r * matrices.row_stride + c], -power) : T(0);
  if (threadIdx.x == 0 && exists && blockIdx.x % slices == 0) {
    exponent[index] = power;
    finite[index] = good;
  }
}

/// Computes for every vector (a row of `rows`, ascending) the sign that makes its entry of largest
/// magnitude (the first one, if several tie) positive. Stores the values in order, scaled back. One
/// warp per vector. Without rows it does only the values.
template <typename T>
__global__ void finish_values(std::int64_t batch, std::int64_t n, const T* ascending, const T* rows,
                              const int* exponent, const bool* finite, const int* information,
                              EighOrder order, T* values, T* sign, EighStatus* status) {
  const std::int64_t at = (std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  const int lane = threadIdx.x % 32;
  if (at >= batch * n) return;
  const std::int64_t index = at / n, i = at % n;
  const bool converged = information[index] == 0, good = finite[index] && converged;
  if (rows != nullptr) {
    LargestEntry<T> largest;
    for (std::int64_t r = lane; r < n; r += 32) largest.offer(rows[at * n + r], int(r));
    largest.share(32);
    if (lane == 0) sign[at] = !good ? T(NAN) : (largest.entry < 0 ? T(-1) : T(1));
  }
  if (lane != 0) return;
  values[index * n + place_in(order, n, n - 1 - i)] =
      good ? ldexp(ascending[at], exponent[index]) : T(NAN);
  if (i == 0 && status != nullptr)
    status[index] = good        ? EighStatus::converged
                    : converged ? EighStatus::not_finite
                                : EighStatus::not_converged;
}

/// vectors = rows, with signs, transposed and in the requested order.
template <typename T>
__global__ void finish_vectors(std::int64_t n, const T* rows, const T* sign, EighOrder order,
                               Matrices<T> vectors) {
  __shared__ T tile[kTile][kTile + 1];
  const std::int64_t tiles = (n + kTile - 1) / kTile;
  const std::int64_t index = blockIdx.x / (tiles * tiles), which = blockIdx.x % (tiles * tiles);
  const std::int64_t first = which / tiles * kTile, top = which % tiles * kTile;
  const T* const source = rows + index * n * n;
  for (int k = threadIdx.y; k < kTile; k += blockDim.y) {
    const std::int64_t c = first + k, r = top + threadIdx.x;  // column, row
    if (c < n && r < n) {
      const std::int64_t i = n - 1 - place_in(order, n, c);
      tile[k][threadIdx.x] = source[i * n + r] * sign[index * n + i] + T(0);
    }
  }
  __syncthreads();
  T* const target = vectors[index];
  for (int k = threadIdx.y; k < kTile; k += blockDim.y) {
    const std::int64_t r = top + k, c = first + threadIdx.x;
    if (c < n && r < n) target[r * vectors.row_stride + c] = tile[threadIdx.x][k];
  }
}

}  // namespace

template <typename T>
void eigh_cusolver(Matrices<const T> matrices, T* values, Matrices<T> vectors, EighOrder order,
                   EighStatus* status, const Stream& stream) {
  const std::int64_t n = matrices.n, batch = matrices.batch;
  const bool has_vectors = vectors.data != nullptr;
  const cudaStream_t queue = native(stream);
  // Only the batched path can be captured in a graph: the other one may involve the host.
  const std::int64_t padded =
      batch < 2 && (n < kFastAlone || is_capturing(kName, stream)) ? 2 : batch;
  const Cusolver& solver = cusolver(kName, stream);
  Scratch<T> rows(kName, stream, padded * n * n), ascending(kName, stream, padded * n),
      sign(kName, stream, has_vectors ? batch * n : 0);
  Scratch<int> exponent(kName, stream, batch), information(kName, stream, padded);
  Scratch<bool> finite(kName, stream, batch);
  Scratch<Bits<T>> largest(kName, stream, batch);
  const int slices = cusolver_slices(batch);
  check(kName, cudaMemsetAsync(largest, 0, std::size_t(batch) * sizeof(T), queue));
  measure<T><<<unsigned(batch * slices), kThreads, 0, queue>>>(matrices, slices, largest);
  check_launch(kName);
  prepare<T><<<unsigned(padded * slices), kThreads, 0, queue>>>(matrices, slices, largest, rows,
                                                                exponent, finite);
  check_launch(kName);

  // The rows of a lower triangle are the columns of an upper one.
  const auto job = has_vectors ? CUSOLVER_EIG_MODE_VECTOR : CUSOLVER_EIG_MODE_NOVECTOR;
  constexpr auto triangle = CUBLAS_FILL_MODE_UPPER;
  constexpr cudaDataType type = kCusolverType<T>;
  std::size_t device_bytes = 0, host_bytes = 0;
  const bool alone = padded == 1;
  check(kName, alone ? cusolverDnXsyevd_bufferSize(solver.handle, solver.parameters, job, triangle,
                                                   n, type, rows, n, type, ascending, type,
                                                   &device_bytes, &host_bytes)
                     : cusolverDnXsyevBatched_bufferSize(
                           solver.handle, solver.parameters, job, triangle, n, type, rows, n, type,
                           ascending, type, &device_bytes, &host_bytes, padded));
  {
    Scratch<unsigned char> workspace(kName, stream, std::int64_t(device_bytes));
    std::vector<unsigned char> host(host_bytes);
    check(kName,
          alone ? cusolverDnXsyevd(solver.handle, solver.parameters, job, triangle, n, type, rows,
                                   n, type, ascending, type, workspace, device_bytes, host.data(),
                                   host_bytes, information)
                : cusolverDnXsyevBatched(solver.handle, solver.parameters, job, triangle, n, type,
                                         rows, n, type, ascending, type, workspace, device_bytes,
                                         host.data(), host_bytes, information, padded));
  }
  if (has_vectors) restore_orthogonality<T>(kName, contiguous<T>(rows, batch, n), stream);

  T* const given = has_vectors ? rows : static_cast<T*>(nullptr);
  finish_values<T><<<unsigned((batch * n * 32 + kThreads - 1) / kThreads), kThreads, 0, queue>>>(
      batch, n, ascending, given, exponent, finite, information, order, values, sign, status);
  check_launch(kName);
  if (!has_vectors) return;
  const std::int64_t tiles = (n + kTile - 1) / kTile;
  finish_vectors<T><<<unsigned(batch * tiles * tiles), dim3(kTile, 8), 0, queue>>>(n, rows, sign,
                                                                                   order, vectors);
  check_launch(kName);
}

#define KEEL_STAGES(T) KEEL_STAGE(eigh_cusolver, T)
KEEL_FOR_REAL(KEEL_STAGES)
#undef KEEL_STAGES

}  // namespace keel::cuda
