#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "cuda/eigh/sign.cuh"
#include "cuda/launch/cusolver.h"
#include "cuda/memory.cuh"
#include "cuda/plan.h"
#include "cuda/svd/paths.h"
#include "cuda/threads.cuh"
#include "formulas/scale.h"
#include "instantiate.h"
#include "keel/error.h"
#include "shape.h"

namespace keel::cuda {
namespace {

constexpr const char* kName = "keel::svd";
constexpr int kThreads = 256;

/// A matrix or its transpose.
template <typename T>
struct Entries {
  T* data;
  std::int64_t row_step, column_step;
  __device__ T& operator()(std::int64_t r, std::int64_t c) const {
    return data[r * row_step + c * column_step];
  }
};

template <typename T>
Entries<T> entries(const Rectangles<T>& all, std::int64_t index, bool transposed) {
  return transposed ? Entries<T>{all[index], 1, all.row_stride}
                    : Entries<T>{all[index], all.row_stride, 1};
}

/// The largest magnitude, or infinity if an entry is not finite.
template <typename T>
__global__ void measure(Entries<const T> a, std::int64_t m, std::int64_t n, Bits<T>* largest) {
  T size = 0;
  for (std::int64_t at = std::int64_t(blockIdx.x) * kThreads + threadIdx.x; at < m * n;
       at += std::int64_t(gridDim.x) * kThreads)
    size = fmax(size, UnitScale<T>::magnitude(a(at % m, at / m)));
  size = Lanes<32>::largest(size);
  if (threadIdx.x % 32 == 0) atomicMax(largest, as_bits(size));
}

/// A copy by columns, of unit size. Zeros if the matrix is not finite.
template <typename T>
__global__ void copy_scaled(Entries<const T> a, std::int64_t m, std::int64_t n,
                            const Bits<T>* largest, T* columns) {
  const UnitScale<T> scale(from_bits(*largest));
  for (std::int64_t at = std::int64_t(blockIdx.x) * kThreads + threadIdx.x; at < m * n;
       at += std::int64_t(gridDim.x) * kThreads)
    columns[at] = scale.finite ? scale.down(a(at % m, at / m)) : T(0);
}

/// One warp for each value and its vectors: signs and scale.
template <typename T>
__global__ void finish(std::int64_t m, std::int64_t n, const T* sizes, Entries<const T> tall,
                       Entries<const T> small, bool tall_is_left, const Bits<T>* largest,
                       const int* information, T* values, Entries<T> tall_out, Entries<T> small_out,
                       SvdStatus* status) {
  const std::int64_t j = (std::int64_t(blockIdx.x) * kThreads + threadIdx.x) / 32;
  const int lane = threadIdx.x % 32;
  if (j >= n) return;
  const UnitScale<T> scale(from_bits(*largest));
  const Entries<const T> left = tall_is_left ? tall : small;
  LargestEntry<T> entry;
  for (std::int64_t r = lane; r < (tall_is_left ? m : n); r += 32) entry.offer(left(r, j), int(r));
  entry.share(32);
  const T nan = std::numeric_limits<T>::quiet_NaN();
  for (std::int64_t r = lane; r < m; r += 32)
    tall_out(r, j) = scale.finite ? entry.with_sign(tall(r, j)) : nan;
  for (std::int64_t r = lane; r < n; r += 32)
    small_out(r, j) = scale.finite ? entry.with_sign(small(r, j)) : nan;
  if (lane != 0) return;
  values[j] = scale.finite ? scale.up(fmax(sizes[j], T(0))) : nan;
  if (j == 0 && status != nullptr)
    *status = !scale.finite       ? SvdStatus::not_finite
              : *information == 0 ? SvdStatus::converged
                                  : SvdStatus::not_converged;
}

}  // namespace

template <typename T>
void svd_cusolver(Rectangles<const T> matrices, T* values, Rectangles<T> left, Rectangles<T> right,
                  SvdStatus* status, const Stream& stream) {
  if (is_capturing(kName, stream))
    throw Error(
        std::string(kName) +
        ": expected min(m, n) <= 512 in a CUDA graph, because cuSOLVER, which solves larger "
        "matrices, cannot be captured; got " +
        shape(matrices));
  const bool is_tall = matrices.rows >= matrices.columns;
  const std::int64_t m = std::max(matrices.rows, matrices.columns),
                     n = std::min(matrices.rows, matrices.columns);
  const cudaStream_t queue = native(stream);
  std::unique_ptr<bool[]> left_over;  // null: all
  if (grid_comes_first<T>(m, n, this_card())) {
    const Scratch<bool> unsolved(kName, stream, matrices.batch);
    svd_polish_grid<T>(matrices, values, left, right, status, unsolved, stream);
    left_over = std::make_unique<bool[]>(std::size_t(matrices.batch));
    check(kName, cudaMemcpyAsync(left_over.get(), unsolved, std::size_t(matrices.batch),
                                 cudaMemcpyDeviceToHost, queue));
    check(kName, cudaStreamSynchronize(queue));
    if (std::none_of(left_over.get(), left_over.get() + matrices.batch,
                     [](bool each) { return each; }))
      return;
  }
  const Cusolver& solver = cusolver(kName, stream);
  const Scratch<T> columns(kName, stream, m * n), tall(kName, stream, m * n),
      small(kName, stream, n * n), sizes(kName, stream, n);
  const Scratch<Bits<T>> largest(kName, stream, 1);
  const Scratch<int> information(kName, stream, 1);
  constexpr cudaDataType type = kCusolverType<T>;
  constexpr auto job = CUSOLVER_EIG_MODE_VECTOR;
  const unsigned blocks = unsigned(std::min<std::int64_t>((m * n + kThreads - 1) / kThreads, 4096));

  for (std::int64_t index = 0; index < matrices.batch; ++index) {
    if (left_over && !left_over[std::size_t(index)]) continue;
    const Entries<const T> a = entries(matrices, index, !is_tall);
    check(kName, cudaMemsetAsync(largest, 0, sizeof(T), queue));
    measure<T><<<blocks, kThreads, 0, queue>>>(a, m, n, largest);
    check_launch(kName);
    const auto copy = [&] {
      copy_scaled<T><<<blocks, kThreads, 0, queue>>>(a, m, n, largest, columns);
      check_launch(kName);
    };
    copy();
    double perturbation = 0;
    {
      std::size_t bytes = 0, host_bytes = 0;
      check(kName, cusolverDnXgesvdp_bufferSize(solver.handle, solver.parameters, job, 1, m, n,
                                                type, columns, m, type, sizes, type, tall, m, type,
                                                small, n, type, &bytes, &host_bytes));
      const Scratch<unsigned char> workspace(kName, stream, std::int64_t(bytes));
      std::vector<unsigned char> host(host_bytes);
      check(kName, cusolverDnXgesvdp(solver.handle, solver.parameters, job, 1, m, n, type, columns,
                                     m, type, sizes, type, tall, m, type, small, n, type, workspace,
                                     bytes, host.data(), host_bytes, information, &perturbation));
    }
    // It changes a matrix that is nearly singular. By more than rounding, this is not the matrix to be solved.
    const bool changed = !(perturbation <= std::numeric_limits<T>::epsilon());
    if (changed) {
      copy();
      std::size_t bytes = 0, host_bytes = 0;
      check(kName, cusolverDnXgesvd_bufferSize(solver.handle, solver.parameters, 'S', 'S', m, n,
                                               type, columns, m, type, sizes, type, tall, m, type,
                                               small, n, type, &bytes, &host_bytes));
      const Scratch<unsigned char> workspace(kName, stream, std::int64_t(bytes));
      std::vector<unsigned char> host(host_bytes);
      check(kName, cusolverDnXgesvd(solver.handle, solver.parameters, 'S', 'S', m, n, type, columns,
                                    m, type, sizes, type, tall, m, type, small, n, type, workspace,
                                    bytes, host.data(), host_bytes, information));
    }
    const Entries<const T> of_small =
        changed ? Entries<const T>{small, n, 1} : Entries<const T>{small, 1, n};
    finish<T><<<unsigned((n * 32 + kThreads - 1) / kThreads), kThreads, 0, queue>>>(
        m, n, sizes, Entries<const T>{tall, 1, m}, of_small, is_tall, largest, information,
        values + index * n, entries(is_tall ? left : right, index, !is_tall),
        entries(is_tall ? right : left, index, is_tall),
        status == nullptr ? nullptr : status + index);
    check_launch(kName);
  }
}

#define KEEL_STAGES(T) KEEL_STAGE(svd_cusolver, T)
KEEL_FOR_REAL(KEEL_STAGES)
#undef KEEL_STAGES

}  // namespace keel::cuda
