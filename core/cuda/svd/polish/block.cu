#include "cuda/svd/paths.h"

#include <algorithm>

#include "cuda/launch/by_size.h"
#include "cuda/launch/early_start.cuh"
#include "cuda/launch/launch.h"
#include "cuda/svd/polish/math.h"
#include "cuda/threads/block.cuh"
#include "keel/eigh.h"

namespace keel::cuda {
namespace {

constexpr const char* kName = "keel::svd";

/// Limit on the numbers for matrices in progress: eigenproblems and their vectors.
constexpr std::int64_t kAtOnce = std::int64_t(1) << 25;

template <typename T>
struct Problem {
  Rectangles<const T> matrices;
  std::int64_t first;  ///< of those in progress
  PolishLayout<T> layout;
  T* squares;  ///< A^T A
  int* exponents;
  PolishResults<T> results;
};

template <typename T, typename Team>
__global__ void __launch_bounds__(kMostPolishThreads) square_kernel(Problem<T> p) {
  extern __shared__ __align__(16) unsigned char memory[];
  const std::int64_t at = blockIdx.x, b = p.first + at;
  const Team team{};
  TeamGram<T, Team> solver(team, p.layout, reinterpret_cast<T*>(memory));
  int exponent = 0;
  const bool able = solver.solve(upright(p.matrices, b), exponent);
  const int n = p.layout.n;
  T* const square = p.squares + at * n * n;
  solver.for_each_entry(n, n, true,
                        [&](int i, int j) { square[i * n + j] = able ? solver(j, i) : T(i == j); });
  if (team.thread() != 0) return;
  p.exponents[at] = exponent;
  p.results.is_left[b] = !able;
}

template <typename T, typename Team>
__global__ void __launch_bounds__(kMostPolishThreads)
    polish_kernel(Problem<T> p, const T* vectors) {
  extern __shared__ __align__(16) unsigned char memory[];
  const std::int64_t at = blockIdx.x, b = p.first + at;
  bool* const is_left = p.results.is_left;
  if (is_left[b]) {  // known before the eigenvectors are
    await_previous();
    return;
  }
  const Team team{};
  const int n = p.layout.n;
  TeamPolish<T, Team> solver(team, p.layout, reinterpret_cast<T*>(memory));
  solver.load(upright(p.matrices, b), p.exponents[at]);
  await_previous();  // the eigenvectors
  let_next_start();
  const T* const own = vectors + at * n * n;
  if (!solver.solve([&](int i, int j) { return own[i * n + j]; })) {
    if (team.thread() == 0) is_left[b] = true;
    return;
  }
  p.results.store(team, solver, b, n, p.matrices.rows < p.matrices.columns);
}

}  // namespace

template <typename T>
void svd_polish_block(Rectangles<const T> matrices, T* values, Rectangles<T> left,
                      Rectangles<T> right, SvdStatus* status, bool* is_left, bool in_one_launch,
                      const Stream& stream) {
  const std::int64_t m = std::max(matrices.rows, matrices.columns),
                     n = std::min(matrices.rows, matrices.columns), batch = matrices.batch;
  const std::int64_t at_once = std::min(batch, std::max<std::int64_t>(1024, kAtOnce / (n * n)));
  const PolishResults<T> results{values, left, right, status, is_left};
  const PolishLayout<T> layout = polish_layout<T>(m, n);
  const int threads = polish_threads(layout, batch);
  if (in_one_launch) return svd_in_one_launch<T>(matrices, layout, threads, results, stream);
  by_size<2, 4, 8>(tile_width<T>(n), [&](auto width) {
    using Team = TileTeam<decltype(width)::value>;
    const int bytes = int(layout.numbers() * std::int64_t(sizeof(T)));
    const Scratch<T> squares(kName, stream, at_once * n * n),
        vectors(kName, stream, at_once * n * n), square_values(kName, stream, at_once * n);
    const Scratch<int> exponents(kName, stream, at_once);
    for (std::int64_t first = 0; first < batch; first += at_once) {
      const std::int64_t count = std::min(at_once, batch - first);
      const Problem<T> problem{matrices, first, layout, squares, exponents, results};
      Launch how{.blocks = unsigned(count), .threads = unsigned(threads), .bytes = bytes};
      launch(kName, square_kernel<T, Team>, how, stream, problem);
      eigh<T>({squares, count, n, n, n * n}, square_values, {vectors, count, n, n, n * n},
              EighOrder::descending, nullptr, stream);
      how.early = true;
      launch(kName, polish_kernel<T, Team>, how, stream, problem, vectors);
    }
  });
}

template void svd_polish_block(Rectangles<const float>, float*, Rectangles<float>,
                               Rectangles<float>, SvdStatus*, bool*, bool, const Stream&);
template void svd_polish_block(Rectangles<const double>, double*, Rectangles<double>,
                               Rectangles<double>, SvdStatus*, bool*, bool, const Stream&);

}  // namespace keel::cuda
