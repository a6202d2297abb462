#include "cuda/svd/paths.h"

#include "cuda/eigh/block/decompose.cuh"
#include "cuda/launch/launch.h"
#include "cuda/plan.h"
#include "cuda/svd/polish/math.h"
#include "cuda/threads.cuh"
#include "instantiate.h"

namespace keel::cuda {
namespace {

constexpr const char* kName = "keel::svd";
template <typename T, int N>
__global__ void __launch_bounds__(kMostPolishThreads, 1)
    one_launch_kernel(Rectangles<const T> matrices, PolishLayout<T> layout, PolishPause<T> pause,
                      PolishResults<T> results) {
  using Tiles = BlockTeam<8, 1, false>;
  constexpr int kWide = tile_width<T>(N);
  using Members = Team<T, N>;
  // A^T A is at most N rows, kPack numbers longer than N.
  static_assert(Members::kBlock && Members::kRow >= N + PolishLayout<T>::kPack);
  extern __shared__ __align__(16) unsigned char memory[];
  T* const numbers = reinterpret_cast<T*>(memory);
  auto& storage = *reinterpret_cast<Storage<T, N>*>(numbers + layout.stack());
  const std::int64_t b = blockIdx.x;
  const int n = layout.n;
  const Tiles tiles{};
  TeamGram<T, kWide, Tiles> square(tiles, layout, numbers, storage.reflectors);
  int exponent = 0;
  bool solved = square.solve(upright(matrices, b), exponent);
  if (solved) {
    if (threadIdx.x < Members::kSize) {
      const Members team{int(threadIdx.x)};
      decompose(
          team, n, [&](int r, int c) { return square(c, r); }, storage);
    } else {
      stand_by(n, storage);
    }
    let_next_start();
    TeamPolish<T, kWide, Tiles> solver(tiles, layout, numbers);
    solver.keep(exponent);
    const PolishEnd end =
        solver.solve([&](int i, int j) { return storage.update[i * Members::kRow + j]; },
                     pause.wanted != nullptr);
    solved = end == PolishEnd::solved;
    if (solved) results.store(tiles, solver, b, n, matrices.rows < matrices.columns);
    pause.note(tiles, solver, end, b, layout);
  } else if (threadIdx.x == 0 && pause.wanted != nullptr) {
    pause.wanted[b] = false;
  }
  if (threadIdx.x != 0) return;
  results.unsolved[b] = !solved;
  pause.exponents[b] = exponent;
}

}  // namespace

template <typename T>
void svd_in_one_launch(Rectangles<const T> matrices, const PolishLayout<T>& layout, int threads,
                       const PolishPause<T>& pause, const PolishResults<T>& results,
                       const Stream& stream) {
  by_small_size(layout.n, [&](auto size) {
    constexpr int N = decltype(size)::value;
    static_assert(sizeof(Storage<T, N>) == block_bytes<T>(N));
    launch(kName, one_launch_kernel<T, N>,
           {.blocks = unsigned(matrices.batch),
            .threads = unsigned(threads),
            .bytes = one_launch_bytes(layout)},
           stream, matrices, layout, pause, results);
  });
}

#define KEEL_STAGES(T) KEEL_STAGE(svd_in_one_launch, T)
KEEL_FOR_REAL(KEEL_STAGES)
#undef KEEL_STAGES

}  // namespace keel::cuda
