#include "cuda/svd/paths.h"

#include <algorithm>
#include <type_traits>

#include "cuda/launch/launch.h"
#include "cuda/svd/polish/grid/begin.cuh"
#include "cuda/svd/polish/grid/give.cuh"
#include "cuda/svd/polish/grid/turn.cuh"
#include "keel/eigh.h"

namespace keel::cuda {
namespace {

constexpr const char* kName = "keel::svd";

/// Limit on the numbers for matrices in progress.
constexpr std::int64_t kAtOnce = std::int64_t(1) << 26;

/// The number of correction steps, five launches each. Finished matrices skip the rest of them.
constexpr int kSteps = 6;

/// Up to this n an idle launch, 0.8 us, matters: use fewer steps, of three launches, without a third term. Three steps
/// are enough for all but one matrix in a thousand. That one would go to Jacobi's method, which takes milliseconds.
constexpr std::int64_t kFewLaunches = 128;
constexpr int kFewSteps = 5;

template <typename... Parameters>
void queue(void (*kernel)(Parameters...), std::int64_t blocks, int threads, const Stream& stream,
           const std::type_identity_t<Parameters>&... arguments) {
  launch(kName, kernel, {.blocks = unsigned(blocks), .threads = unsigned(threads), .early = true},
         stream, arguments...);
}

}  // namespace

template <typename T>
void svd_polish_grid(Rectangles<const T> matrices, T* values, Rectangles<T> left,
                     Rectangles<T> right, SvdStatus* status, bool* is_left, const Stream& stream) {
  const std::int64_t m = std::max(matrices.rows, matrices.columns),
                     n = std::min(matrices.rows, matrices.columns), height = m + n;
  const std::int64_t at_once = std::clamp<std::int64_t>(kAtOnce / (height * n), 1, matrices.batch);
  const bool three_terms = n > kFewLaunches;
  const int steps = three_terms ? kSteps : kFewSteps;
  using Problem = GridProblem<T>;
  constexpr int kSlices = Problem::kSlices, kThreads = GridTile<T>::kThreads;
  const std::int64_t across = Problem::tiles(int(n)), down = Problem::tiles(int(height));
  const Scratch<T> one(kName, stream, at_once * height * n),
      two(kName, stream, at_once * height * n), products(kName, stream, at_once * n * n),
      angles(kName, stream, at_once * n * n), terms(kName, stream, at_once * n * n),
      numbers(kName, stream, at_once * (4 * n + m));
  const Scratch<GridFound<T>> found(kName, stream, at_once * across * across);
  const Scratch<int> places(kName, stream, at_once * (n + 1 + kSteps + 1));
  for (std::int64_t first = 0; first < matrices.batch; first += at_once) {
    const std::int64_t count = std::min(at_once, matrices.batch - first);
    T* const squares = numbers + at_once * (n + m);
    T* const sizes = squares + at_once * n;
    T* const signs = sizes + at_once * n;
    int* const states = places + at_once;
    int* const order = states + at_once * (steps + 1);
    const Problem p{matrices, first,   count,
                    int(m),   int(n),  places,
                    is_left,  numbers, numbers + at_once * n,
                    squares,  found,   states,
                    one,      two,     three_terms};
    const std::int64_t small_tiles = count * across * across, tiles = count * down * across;
    check(kName,
          cudaMemsetAsync(numbers, 0, std::size_t(at_once * (n + m)) * sizeof(T), native(stream)));
    using Bits = std::conditional_t<sizeof(T) == 4, unsigned, unsigned long long>;
    grid_sizes<T, Bits><<<unsigned(count * kSlices), 256, 0, native(stream)>>>(p);
    check_launch(kName);
    queue(grid_judge<T>, count, 256, stream, p);
    queue(grid_square<T>, small_tiles, kThreads, stream, p, products);
    eigh<T>({products, count, n, n, n * n}, sizes, {two, count, n, n, n * n}, EighOrder::descending,
            nullptr, stream);
    queue(grid_begin<T>, count * (Problem::tiles(int(m)) + across) * across, kThreads, stream, p,
          two);
    for (int step = 0; step < steps; ++step) {
      queue(grid_look<T>, small_tiles, kThreads, stream, p, step, angles);
      queue(grid_square_angles<T>, small_tiles, kThreads, stream, p, step, angles, products);
      if (three_terms) {
        queue(grid_third_term<T>, small_tiles, kThreads, stream, p, step, products, terms);
        queue(grid_join_terms<T>, small_tiles, kThreads, stream, p, step, angles, terms, products);
      }
      queue(grid_turn<T>, tiles, kThreads, stream, p, step, angles, products);
    }
    queue(grid_look<T>, small_tiles, kThreads, stream, p, steps, angles);
    queue(grid_measure<T>, (count * n + 7) / 8, 256, stream, p, steps, sizes, signs);
    queue(grid_order<T>, count, 512, stream, p, sizes, order, values, status);
    queue(grid_give<T>, tiles, 256, stream, p, steps, sizes, signs, order, left, right);
  }
}

template void svd_polish_grid(Rectangles<const float>, float*, Rectangles<float>, Rectangles<float>,
                              SvdStatus*, bool*, const Stream&);
template void svd_polish_grid(Rectangles<const double>, double*, Rectangles<double>,
                              Rectangles<double>, SvdStatus*, bool*, const Stream&);

}  // namespace keel::cuda
