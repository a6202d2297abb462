#include "cuda/svd/paths.h"

#include <algorithm>

#include "cuda/eigh/paths.h"
#include "cuda/launch/launch.h"
#include "cuda/plan.h"
#include "cuda/svd/polish/math.h"
#include "cuda/threads.cuh"
#include "instantiate.h"
#include "keel/eigh.h"

namespace keel::cuda {
namespace {

constexpr const char* kName = "keel::svd";

using Team = BlockTeam<8, 1, false>;

template <typename T>
struct Problem {
  Rectangles<const T> matrices;
  std::int64_t first;  ///< of those in progress
  PolishLayout<T> layout;
  PolishPause<T> pause;
  PolishResults<T> results;
};

template <typename T, int WIDE>
__global__ void __launch_bounds__(kMostPolishThreads) square_kernel(Problem<T> p) {
  extern __shared__ __align__(16) unsigned char memory[];
  const std::int64_t at = blockIdx.x, b = p.first + at;
  const Team team{};
  TeamGram<T, WIDE, Team> solver(team, p.layout, reinterpret_cast<T*>(memory));
  int exponent = 0;
  const bool able = solver.solve(upright(p.matrices, b), exponent);
  const int n = p.layout.n;
  T* const square = p.pause.products + at * n * n;
  solver.for_each_entry(n, n, true,
                        [&](int i, int j) { square[i * n + j] = able ? solver(j, i) : T(i == j); });
  if (team.thread() != 0) return;
  p.pause.exponents[at] = exponent;
  p.results.unsolved[b] = !able;
}

template <typename T, int WIDE>
__global__ void __launch_bounds__(kMostPolishThreads)
    polish_kernel(Problem<T> p, const T* vectors) {
  extern __shared__ __align__(16) unsigned char memory[];
  const std::int64_t at = blockIdx.x, b = p.first + at;
  bool* const unsolved = p.results.unsolved;
  if (unsolved[b]) {  // known before the eigenvectors are
    await_previous();
    if (p.pause.wanted != nullptr && threadIdx.x == 0) p.pause.wanted[at] = false;
    return;
  }
  const Team team{};
  const int n = p.layout.n;
  TeamPolish<T, WIDE, Team> solver(team, p.layout, reinterpret_cast<T*>(memory));
  solver.load(upright(p.matrices, b), p.pause.exponents[at]);
  await_previous();  // the eigenvectors
  let_next_start();
  const T* const own = vectors + at * n * n;
  const PolishEnd end =
      solver.solve([&](int i, int j) { return own[i * n + j]; }, p.pause.wanted != nullptr);
  p.pause.note(team, solver, end, at, p.layout);
  if (end == PolishEnd::solved)
    p.results.store(team, solver, b, n, p.matrices.rows < p.matrices.columns);
  else if (team.thread() == 0)
    unsolved[b] = true;
}

/// Goes on with the matrices that pause.
template <typename T, int WIDE>
__global__ void __launch_bounds__(kMostPolishThreads)
    turn_kernel(Problem<T> p, const T* turns, bool may_turn) {
  extern __shared__ __align__(16) unsigned char memory[];
  const std::int64_t at = blockIdx.x, b = p.first + at;
  if (!p.pause.wanted[at]) return;
  const Team team{};
  const int n = p.layout.n;
  TeamPolish<T, WIDE, Team> solver(team, p.layout, reinterpret_cast<T*>(memory));
  const T* const own = turns + at * n * n;
  const PolishEnd end = solver.turn(
      p.pause.stacks + at * p.layout.stack(), p.pause.exponents[at],
      [&](int i, int j) { return own[i * n + j]; }, may_turn);
  p.pause.note(team, solver, end, at, p.layout);
  if (end != PolishEnd::solved) return;
  p.results.store(team, solver, b, n, p.matrices.rows < p.matrices.columns);
  if (team.thread() == 0) p.results.unsolved[b] = false;
}

}  // namespace

template <typename T>
void svd_polish_block(Rectangles<const T> matrices, T* values, Rectangles<T> left,
                      Rectangles<T> right, SvdStatus* status, bool* unsolved, bool in_one_launch,
                      const Stream& stream) {
  const std::int64_t m = std::max(matrices.rows, matrices.columns),
                     n = std::min(matrices.rows, matrices.columns), batch = matrices.batch;
  const PolishResults<T> results{values, left, right, status, unsolved};
  const PolishLayout<T> layout = polish_layout<T>(m, n);
  const std::int64_t at_once =
      std::min(batch, std::max<std::int64_t>(1024, kBlockNumbers / layout.stack()));
  const int threads = polish_threads(layout, batch);
  const bool turns = has_eigh_some<T>(n, at_once);
  by_size<2, 4, 8>(tile_width<T>(n), [&](auto width) {
    constexpr int kWide = decltype(width)::value;
    const int bytes = int(layout.numbers() * std::int64_t(sizeof(T)));
    const Scratch<T> squares(kName, stream, at_once * n * n),
        vectors(kName, stream, at_once * n * n), square_values(kName, stream, at_once * n),
        turned(kName, stream, turns ? at_once * n * n : 0),
        stacks(kName, stream, turns ? at_once * layout.stack() : 0);
    const Scratch<int> exponents(kName, stream, at_once);
    const Scratch<bool> wanted(kName, stream, turns ? at_once : 0);
    const PolishPause<T> pause{squares, stacks, exponents, wanted};
    for (std::int64_t first = 0; first < batch; first += at_once) {
      const std::int64_t count = std::min(at_once, batch - first);
      const Problem<T> problem{matrices, first, layout, pause, results};
      Launch how{.blocks = unsigned(count), .threads = unsigned(threads), .bytes = bytes};
      if (in_one_launch) {
        svd_in_one_launch<T>(matrices, layout, threads, pause, results, stream);
      } else {
        launch(kName, square_kernel<T, kWide>, how, stream, problem);
        eigh<T>({squares, count, n, n, n * n}, square_values, {vectors, count, n, n, n * n},
                EighOrder::descending, nullptr, stream);
        how.early = true;
        launch(kName, polish_kernel<T, kWide>, how, stream, problem, vectors);
        how.early = false;
      }
      for (int turn = 1; turns && turn <= kMostTurns; ++turn) {
        eigh_some<T>({squares, count, n, n, n * n}, square_values, {turned, count, n, n, n * n},
                     wanted, stream);
        launch(kName, turn_kernel<T, kWide>, how, stream, problem, turned, turn < kMostTurns);
      }
    }
  });
}

#define KEEL_STAGES(T) KEEL_STAGE(svd_polish_block, T)
KEEL_FOR_REAL(KEEL_STAGES)
#undef KEEL_STAGES

}  // namespace keel::cuda
