#include "cuda/svd/square_eigh.h"

#include <algorithm>

#include "cuda/eigh/block.cuh"
#include "cuda/launch/scratch.h"
#include "cuda/svd/block_team.cuh"

namespace keel::cuda {
namespace {

constexpr const char* kName = "keel::cuda::svd";
constexpr int kMostThreads = 512;

/// X of the product comes first and overlaps with what eigh needs later, but not with the product, which eigh reads
/// from `reflectors`. That follows after two matrices.
template <typename T, int N>
struct Memory {
  using STORAGE = Storage<T, N>;
  std::int64_t before;  ///< bytes before the STORAGE

  explicit Memory(const PolishLayout<T>& layout)
      : before(std::max<std::int64_t>(0, layout.stack() * std::int64_t(sizeof(T)) -
                                             2 * std::int64_t(sizeof(STORAGE::vectors)))) {}
  std::int64_t bytes() const { return before + std::int64_t(sizeof(STORAGE)); }
};

template <typename T, int N>
__global__ void __launch_bounds__(kMostThreads, 1)
    square_eigh_kernel(Rectangles<const T> matrices, PolishLayout<T> layout, int before,
                       T* all_vectors, bool* is_left) {
  using Tiles = TileTeam<tile_width<T>(N)>;
  using Members = Team<T, N>;
  // The product is at most `columns` rows of columns + kPack numbers.
  static_assert(Members::kBlock && Members::kRow >= N + PolishLayout<T>::kPack);
  extern __shared__ __align__(16) unsigned char memory[];
  let_next_start();  // for a next kernel that is launched early
  const std::int64_t b = blockIdx.x;
  const int n = layout.n;
  auto& storage = *reinterpret_cast<Storage<T, N>*>(memory + before);
  const Tiles tiles{};
  TeamGram<T, Tiles> square(tiles, layout, reinterpret_cast<T*>(memory), storage.reflectors);
  int exponent = 0;
  const bool able = square.solve(upright(matrices, b), exponent);
  if (threadIdx.x == 0) is_left[b] = !able;
  // Barriers do not wait for threads that have returned.
  if (!able || threadIdx.x >= Members::kSize) return;
  const Members team{int(threadIdx.x)};
  decompose(
      team, n, [&](int r, int c) { return square(c, r); }, storage);
  store_vectors(team, n, storage, EighOrder::descending, all_vectors + b * n * n, n);
}

/// Calls body(std::integral_constant<int, N>) with eigh's N for this n, if that is 16, 32 or 64.
template <typename Body>
auto by_size(std::int64_t n, const Body& body) {
  if (n <= 16) return body(std::integral_constant<int, 16>{});
  if (n <= 32) return body(std::integral_constant<int, 32>{});
  return body(std::integral_constant<int, 64>{});
}

}  // namespace

template <typename T>
bool squares_in_eigh(std::int64_t batch, const PolishLayout<T>& layout, int threads) {
  if (layout.n <= 8 || layout.n > 64 || batch > multiprocessors()) return false;
  return by_size(layout.n, [&](auto size) {
    constexpr int N = decltype(size)::value;
    // Leaves some for the kernel's static shared memory.
    return threads >= Team<T, N>::kSize &&
           Memory<T, N>(layout).bytes() <= shared_memory_of_a_block() - 1024;
  });
}

template <typename T>
void square_eigh(Rectangles<const T> matrices, const PolishLayout<T>& layout, int threads,
                 T* vectors, bool* is_left, const Stream& stream) {
  by_size(layout.n, [&](auto size) {
    constexpr int N = decltype(size)::value;
    const Memory<T, N> memory(layout);
    allow_shared_memory(kName, square_eigh_kernel<T, N>, int(memory.bytes()));
    square_eigh_kernel<T, N>
        <<<unsigned(matrices.batch), unsigned(threads), unsigned(memory.bytes()), native(stream)>>>(
            matrices, layout, int(memory.before), vectors, is_left);
  });
  check_launch(kName);
}

template bool squares_in_eigh(std::int64_t, const PolishLayout<float>&, int);
template bool squares_in_eigh(std::int64_t, const PolishLayout<double>&, int);
template void square_eigh(Rectangles<const float>, const PolishLayout<float>&, int, float*, bool*,
                          const Stream&);
template void square_eigh(Rectangles<const double>, const PolishLayout<double>&, int, double*,
                          bool*, const Stream&);

}  // namespace keel::cuda
