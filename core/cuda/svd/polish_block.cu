#include "cuda/svd/polish_block.h"

#include <algorithm>

#include "cuda/launch/card.h"
#include "cuda/launch/early_start.cuh"
#include "cuda/launch/scratch.h"
#include "cuda/svd/block_team.cuh"
#include "cuda/svd/polish.h"
#include "cuda/svd/square_eigh.h"
#include "keel/eigh.h"

namespace keel::cuda {
namespace {

constexpr const char* kName = "keel::cuda::svd";

/// For smaller n, one launch of Jacobi's method is as fast as these four.
constexpr std::int64_t kFewest = 12;
template <typename T>
constexpr std::int64_t kMost = sizeof(T) == 4 ? 128 : 64;

/// Up to this batch size the GPU has room for more threads than a small matrix has tiles.
constexpr std::int64_t kFew = 1024;

/// Up to this many matrices of size n, the launches of polish_grid.cu, which use all multiprocessors, are faster than
/// the products of one block per matrix.
constexpr std::int64_t few_to_share(std::int64_t n) { return n > 80 ? 32 : n > 64 ? 8 : 0; }

/// Limit on the numbers for matrices in progress: eigenproblems and their vectors.
constexpr std::int64_t kAtOnce = std::int64_t(1) << 25;

/// Calls body with the width of a thread's tile, as a type.
template <typename T, typename Body>
auto by_width(std::int64_t n, const Body& body) {
  const int width = tile_width<T>(n);
  if (width == 2) return body(std::integral_constant<int, 2>{});
  if (width == 4) return body(std::integral_constant<int, 4>{});
  return body(std::integral_constant<int, 8>{});
}

template <typename T>
struct Problem {
  Rectangles<const T> matrices;
  std::int64_t first;  ///< of those in progress
  PolishLayout<T> layout;
  // These two are null if one launch computes A^T A and its eigenvectors.
  T* squares;  ///< A^T A
  int* exponents;
  bool* is_left;

  __device__ bool wide() const { return matrices.rows < matrices.columns; }
  __device__ SvdSource<T> source(std::int64_t b) const { return upright(matrices, b); }
};

constexpr int kMostThreads = 512;

template <typename T, typename Team>
__global__ void __launch_bounds__(kMostThreads) square_kernel(Problem<T> p) {
  extern __shared__ __align__(16) unsigned char memory[];
  const std::int64_t at = blockIdx.x, b = p.first + at;
  const Team team{};
  TeamGram<T, Team> solver(team, p.layout, reinterpret_cast<T*>(memory));
  int exponent = 0;
  const bool able = solver.solve(p.source(b), exponent);
  const int n = p.layout.n;
  T* const square = p.squares + at * n * n;
  solver.for_each_entry(n, n, true,
                        [&](int i, int j) { square[i * n + j] = able ? solver(j, i) : T(i == j); });
  if (team.thread() != 0) return;
  p.exponents[at] = exponent;
  p.is_left[b] = !able;
}

template <typename T, typename Team>
__global__ void __launch_bounds__(kMostThreads)
    polish_kernel(Problem<T> p, const T* vectors, T* all_values, Rectangles<T> all_left,
                  Rectangles<T> all_right, SvdStatus* status) {
  extern __shared__ __align__(16) unsigned char memory[];
  const std::int64_t at = blockIdx.x, b = p.first + at;
  const Team team{};
  const int n = p.layout.n;
  TeamPolish<T, Team> solver(team, p.layout, reinterpret_cast<T*>(memory));
  // Before the eigenvectors are known. If the previous kernel also judges A, this one does it again, while it waits.
  bool able = true;
  if (p.exponents == nullptr)
    able = solver.load(p.source(b));
  else if (p.is_left[b])
    able = false;
  else
    solver.load(p.source(b), p.exponents[at]);
  await_previous();  // the eigenvectors
  if (!able) return;
  let_next_start();
  if (!solver.solve(vectors + at * n * n)) {
    if (team.thread() == 0) p.is_left[b] = true;
    return;
  }
  const bool wide = p.wide();
  T *const values = all_values + b * n, *const left = all_left[b], *const right = all_right[b];
  const std::int64_t down = all_left.row_stride, across = all_right.row_stride;
  solver.give(
      !wide, [&](int c, T x) { values[c] = x; },
      [&](int i, int c, T x) { *(wide ? right + c * across + i : left + i * down + c) = x; },
      [&](int c, int j, T x) { *(wide ? left + j * down + c : right + c * across + j) = x; });
  if (status != nullptr && team.thread() == 0) status[b] = SvdStatus::converged;
}

template <typename T>
PolishLayout<T> layout_of(std::int64_t m, std::int64_t n) {
  return by_width<T>(
      n, [&](auto width) { return PolishLayout<T>(int(m), int(n), decltype(width)::value); });
}

}  // namespace

template <typename T>
bool polishes_in_block(std::int64_t batch, std::int64_t rows, std::int64_t columns) {
  const std::int64_t m = std::max(rows, columns), n = std::min(rows, columns);
  if (batch <= few_to_share(n)) return false;
  // Leaves some for the kernels' static shared memory.
  return n >= kFewest && n <= kMost<T> && m < 32768 &&
         layout_of<T>(m, n).numbers() * std::int64_t(sizeof(T)) <=
             shared_memory_of_a_block() - 1024;
}

template <typename T>
void svd_polish_block(Rectangles<const T> matrices, T* values, Rectangles<T> left,
                      Rectangles<T> right, SvdStatus* status, bool* is_left, const Stream& stream) {
  const std::int64_t m = std::max(matrices.rows, matrices.columns),
                     n = std::min(matrices.rows, matrices.columns), batch = matrices.batch;
  const std::int64_t at_once = std::min(batch, std::max<std::int64_t>(1024, kAtOnce / (n * n)));
  by_width<T>(n, [&](auto width) {
    using Team = TileTeam<decltype(width)::value>;
    const PolishLayout<T> layout(int(m), int(n), Team::kWide);
    const int bytes = int(layout.numbers() * std::int64_t(sizeof(T)));
    // One thread per tile of K; more if X is taller, or if the batch is small enough to leave room for them.
    const int tiles = layout.columns / PolishLayout<T>::kPack * (layout.columns / Team::kWide);
    const int wanted = tiles * int(std::min<std::int64_t>(4, m / n)), fewest = batch > kFew ? 32
                                                                               : n <= 16    ? 128
                                                                                            : 256;
    const int threads = std::clamp((wanted + 31) / 32 * 32, fewest, kMostThreads);
    const bool joined = squares_in_eigh<T>(batch, layout, threads);
    const std::int64_t apart = joined ? 0 : at_once;
    const Scratch<T> vectors(kName, stream, at_once * n * n), squares(kName, stream, apart * n * n),
        square_values(kName, stream, apart * n);
    const Scratch<int> exponents(kName, stream, apart);
    allow_shared_memory(kName, square_kernel<T, Team>, bytes);
    allow_shared_memory(kName, polish_kernel<T, Team>, bytes);
    for (std::int64_t first = 0; first < batch; first += at_once) {
      const std::int64_t count = std::min(at_once, batch - first);
      const Problem<T> problem{matrices, first, layout, squares, exponents, is_left};
      if (joined) {
        square_eigh<T>(matrices, layout, threads, vectors, is_left, stream);
      } else {
        square_kernel<T, Team>
            <<<unsigned(count), unsigned(threads), unsigned(bytes), native(stream)>>>(problem);
        check_launch(kName);
        eigh<T>({squares, count, n, n, n * n}, square_values, {vectors, count, n, n, n * n},
                EighOrder::descending, nullptr, stream);
      }
      check(kName, launch_early(polish_kernel<T, Team>, unsigned(count), unsigned(threads), bytes,
                                native(stream), problem, vectors, values, left, right, status));
    }
  });
}

template bool polishes_in_block<float>(std::int64_t, std::int64_t, std::int64_t);
template bool polishes_in_block<double>(std::int64_t, std::int64_t, std::int64_t);
template void svd_polish_block(Rectangles<const float>, float*, Rectangles<float>,
                               Rectangles<float>, SvdStatus*, bool*, const Stream&);
template void svd_polish_block(Rectangles<const double>, double*, Rectangles<double>,
                               Rectangles<double>, SvdStatus*, bool*, const Stream&);

}  // namespace keel::cuda
