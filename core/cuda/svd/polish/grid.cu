#include "cuda/svd/paths.h"

#include <algorithm>
#include <type_traits>

#include "cuda/eigh/paths.h"
#include "cuda/launch/launch.h"
#include "cuda/svd/polish/grid/begin.cuh"
#include "cuda/svd/polish/grid/correct.cuh"
#include "cuda/svd/polish/grid/finish.cuh"
#include "instantiate.h"
#include "keel/eigh.h"

namespace keel::cuda {
namespace {

constexpr const char* kName = "keel::svd";

template <typename... Parameters>
void queue(void (*kernel)(Parameters...), std::int64_t blocks, int threads, const Stream& stream,
           const std::type_identity_t<Parameters>&... arguments) {
  launch(kName, kernel, {.blocks = unsigned(blocks), .threads = unsigned(threads), .early = true},
         stream, arguments...);
}

}  // namespace

template <typename T>
void svd_polish_grid(Rectangles<const T> matrices, T* values, Rectangles<T> left,
                     Rectangles<T> right, SvdStatus* status, bool* unsolved, const Stream& stream) {
  const std::int64_t m = std::max(matrices.rows, matrices.columns),
                     n = std::min(matrices.rows, matrices.columns), height = m + n;
  const std::int64_t at_once =
      std::clamp<std::int64_t>(kGridNumbers / (height * n), 1, matrices.batch);
  const auto [steps, three_terms] = grid_steps(n);
  const int turns = has_eigh_some<T>(n, at_once) ? kMostTurns : 0;
  using Problem = GridProblem<T>;
  constexpr int kSlices = Problem::kSlices, kThreads = GridTile<T>::kThreads;
  const std::int64_t across = Problem::tiles(int(n)), down = Problem::tiles(int(height));
  const Scratch<T> one(kName, stream, at_once * height * n),
      two(kName, stream, at_once * height * n), products(kName, stream, at_once * n * n),
      angles(kName, stream, at_once * n * n), terms(kName, stream, at_once * n * n),
      numbers(kName, stream, at_once * (4 * n + m));
  const Scratch<GridFound<T>> found(kName, stream, at_once * across * across);
  const Scratch<bool> wanted(kName, stream, at_once);
  const Scratch<T> group_numbers(kName, stream, turns > 0 ? at_once * kRegroupNumbers * n : 0);
  const Scratch<int> group_places(kName, stream, turns > 0 ? at_once * kRegroupPlaces * n : 0);
  const Scratch<int> places(kName, stream, at_once * (n + steps + 2));
  for (std::int64_t first = 0; first < matrices.batch; first += at_once) {
    const std::int64_t count = std::min(at_once, matrices.batch - first);
    T* const squares = numbers + at_once * (n + m);
    T* const sizes = squares + at_once * n;
    T* const signs = sizes + at_once * n;
    int* const states = places + at_once;
    int* const order = states + at_once * (steps + 1);
    const Problem p{matrices, first,   count,
                    int(m),   int(n),  places,
                    unsolved, numbers, numbers + at_once * n,
                    squares,  found,   states,
                    one,      two,     three_terms,
                    turns};
    const std::int64_t small_tiles = count * across * across, tiles = count * down * across;
    check(kName,
          cudaMemsetAsync(numbers, 0, std::size_t(at_once * (n + m)) * sizeof(T), native(stream)));
    using Bits = std::conditional_t<sizeof(T) == 4, unsigned, unsigned long long>;
    grid_sizes<T, Bits><<<unsigned(count * kSlices), 256, 0, native(stream)>>>(p);
    check_launch(kName);
    queue(grid_check<T>, count, 256, stream, p);
    queue(grid_square<T>, small_tiles, kThreads, stream, p, products);
    eigh<T>({products, count, n, n, n * n}, sizes, {two, count, n, n, n * n}, EighOrder::descending,
            nullptr, stream);
    queue(grid_begin<T>, count * (Problem::tiles(int(m)) + across) * across, kThreads, stream, p,
          two);
    for (int step = 0; step < steps; ++step) {
      queue(grid_angles<T>, small_tiles, kThreads, stream, p, step, angles);
      if (step < 2 * turns && step % 2 == 0) {
        queue(grid_mask<T>, small_tiles, 256, stream, p, step, angles);
      } else if (step < 2 * turns) {
        queue(grid_products<T>, small_tiles, kThreads, stream, p, step, terms);
        queue(grid_groups<T>, count, 512, stream, p, step, terms, group_numbers, group_places,
              wanted);
        eigh_some<T>({terms, count, n, n, n * n}, sizes, {products, count, n, n, n * n}, wanted,
                     stream);
      }
      queue(grid_square_angles<T>, small_tiles, kThreads, stream, p, step, angles, products);
      if (three_terms) {
        queue(grid_third_term<T>, small_tiles, kThreads, stream, p, step, products, terms);
        queue(grid_join_terms<T>, small_tiles, kThreads, stream, p, step, angles, terms, products);
      }
      queue(grid_correct<T>, tiles, kThreads, stream, p, step, angles, products);
    }
    queue(grid_angles<T>, small_tiles, kThreads, stream, p, steps, angles);
    queue(grid_measure<T>, (count * n + 7) / 8, 256, stream, p, steps, sizes, signs);
    queue(grid_order<T>, count, 512, stream, p, sizes, order, values, status);
    queue(grid_store<T>, tiles, 256, stream, p, steps, sizes, signs, order, left, right);
  }
}

#define KEEL_STAGES(T) KEEL_STAGE(svd_polish_grid, T)
KEEL_FOR_REAL(KEEL_STAGES)
#undef KEEL_STAGES

}  // namespace keel::cuda
