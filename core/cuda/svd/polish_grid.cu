#include "cuda/svd/polish_grid.h"

#include <algorithm>
#include <type_traits>

#include "cuda/launch/scratch.h"
#include "cuda/svd/polish_grid_parts.cuh"
#include "keel/eigh.h"

namespace keel::cuda {
namespace {

constexpr const char* kName = "keel::cuda::svd";

/// Numbers kept for the matrices under way.
constexpr std::int64_t kAtOnce = std::int64_t(1) << 26;
constexpr std::int64_t kFewest = 32;

/// Angles are taken out this often; each time takes nine launches, of which most matrices need the first two or three times.
constexpr int kGridPolish = 6;

template <typename... Parameters>
void launch(void (*kernel)(Parameters...), std::int64_t blocks, int threads, const Stream& stream,
            std::type_identity_t<Parameters>... arguments) {
  kernel<<<unsigned(blocks), unsigned(threads), 0, native(stream)>>>(arguments...);
  check_launch(kName);
}

}  // namespace

template <typename T>
bool polishes_on_grid(std::int64_t rows, std::int64_t columns) {
  return std::min(rows, columns) >= kFewest;
}

template <typename T>
void svd_polish_grid(Rectangles<const T> matrices, T* values, Rectangles<T> left,
                     Rectangles<T> right, SvdStatus* status, bool* is_left, const Stream& stream) {
  const std::int64_t m = std::max(matrices.rows, matrices.columns),
                     n = std::min(matrices.rows, matrices.columns), height = m + n;
  const std::int64_t at_once = std::clamp<std::int64_t>(kAtOnce / (height * n), 1, matrices.batch);
  using Problem = GridProblem<T>;
  using Reach = PolishReach<T>;
  constexpr int kSlices = Problem::kSlices, kThreads = GridTile<T>::kThreads;
  const Scratch<T> one(kName, stream, at_once * height * n),
      two(kName, stream, at_once * height * n), products(kName, stream, at_once * n * n),
      angles(kName, stream, at_once * n * n),
      numbers(kName, stream, at_once * (3 * n + m + 2 * kSlices));
  const Scratch<int> places(kName, stream, at_once * (n + 1));
  for (std::int64_t first = 0; first < matrices.batch; first += at_once) {
    const std::int64_t count = std::min(at_once, matrices.batch - first);
    T* const sizes = numbers + at_once * (n + m + 2 * kSlices);
    T* const signs = sizes + at_once * n;
    int* const order = places + at_once;
    const Problem p{matrices,
                    first,
                    int(m),
                    int(n),
                    places,
                    is_left,
                    numbers,
                    numbers + at_once * n,
                    numbers + at_once * (n + m),
                    numbers + at_once * (n + m + kSlices)};
    const std::int64_t small_tiles = count * ((n + 31) / 32) * ((n + 31) / 32),
                       tiles = count * ((height + 31) / 32) * ((n + 31) / 32);
    check(kName,
          cudaMemsetAsync(numbers, 0, std::size_t(at_once * (n + m)) * sizeof(T), native(stream)));
    using Bits = std::conditional_t<sizeof(T) == 4, unsigned, unsigned long long>;
    launch(grid_sizes<T, Bits>, count * kSlices, 256, stream, p);
    launch(grid_judge<T>, count, 256, stream, p);
    launch(grid_square<T>, small_tiles, kThreads, stream, p, products);
    eigh<T>({products, count, n, n, n * n}, sizes, {two, count, n, n, n * n}, EighOrder::descending,
            nullptr, stream);
    T *stack = one, *other = two;
    launch(grid_begin<T>, tiles, kThreads, stream, p, two, stack);
    const auto turn = [&](T least, T factor, const T* by) {
      launch(grid_turn<T>, tiles, kThreads, stream, p, least, factor, by, stack, other);
      std::swap(stack, other);
    };
    for (int step = 0;; ++step) {
      launch(grid_products<T>, small_tiles, kThreads, stream, p, stack, products);
      launch(grid_angles<T>, count * kSlices, 256, stream, p, products, angles);
      if (step == kGridPolish) break;
      const std::int64_t pairs = (n - step % 2) / 2;
      launch(grid_neighbours<T>, count * pairs, 256, stream, p, step % 2, products, angles, stack);
      turn(T(0), T(1), angles);
      launch(grid_square_angles<T>, small_tiles, kThreads, stream, p, Reach::kFirst, angles,
             products);
      turn(Reach::kFirst, T(0.5), products);
      launch(grid_square_angles<T>, small_tiles, kThreads, stream, p, Reach::kSecond, products,
             angles);
      turn(Reach::kSecond, T(0.375), angles);
    }
    launch(grid_measure<T>, (count * n + 7) / 8, 256, stream, p, count, stack, sizes, signs);
    launch(grid_order<T>, count, 512, stream, p, sizes, order, values, status);
    launch(grid_give<T>, tiles, 256, stream, p, stack, sizes, signs, order, left, right);
  }
}

template bool polishes_on_grid<float>(std::int64_t, std::int64_t);
template bool polishes_on_grid<double>(std::int64_t, std::int64_t);
template void svd_polish_grid(Rectangles<const float>, float*, Rectangles<float>, Rectangles<float>,
                              SvdStatus*, bool*, const Stream&);
template void svd_polish_grid(Rectangles<const double>, double*, Rectangles<double>,
                              Rectangles<double>, SvdStatus*, bool*, const Stream&);

}  // namespace keel::cuda
