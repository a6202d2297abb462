#include "cuda/eigh/paths.h"

#include <algorithm>
#include <type_traits>

#include "cuda/eigh/wide/finish.cuh"
#include "cuda/eigh/wide/leaves.cuh"
#include "cuda/eigh/wide/measure.cuh"
#include "cuda/eigh/wide/merge.cuh"
#include "cuda/eigh/wide/multiply.cuh"
#include "cuda/eigh/wide/reduce.cuh"
#include "cuda/launch/by_size.h"
#include "cuda/launch/card.h"
#include "cuda/launch/scratch.h"

namespace keel::cuda {

namespace {

constexpr const char* kName = "keel::eigh";

/// Device memory for the matrices in flight.
constexpr std::int64_t kMostBytes = std::int64_t(512) << 20;

/// Launches a kernel with this much shared memory; `together` means cooperatively.
template <typename... Parameters>
void launch(void (*kernel)(Parameters...), dim3 blocks, int threads, std::int64_t bytes,
            cudaStream_t queue, bool together,
            const std::type_identity_t<Parameters>&... arguments) {
  allow_shared_memory(kName, kernel, int(bytes));
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeCooperative;
  attribute.val.cooperative = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = dim3(unsigned(threads));
  config.dynamicSmemBytes = std::size_t(bytes);
  config.stream = queue;
  config.attrs = &attribute;
  config.numAttrs = together ? 1 : 0;
  check(kName, cudaLaunchKernelEx(&config, kernel, arguments...));
}

/// The number of vectors that a warp can hold in registers during the back-transformation.
template <typename T>
constexpr int vectors_of_a_warp(int squares) {
  const int registers = squares * int(sizeof(T)) / 4;
  return registers <= 16 ? 4 : registers <= 64 ? 2 : 1;
}

/// The most shared memory that a block of any step needs, except the reduction, which takes what
/// there is.
template <typename T>
constexpr std::size_t largest_storage() {
  const auto finish = []<int SQUARES>(std::integral_constant<int, SQUARES>) {
    return sizeof(typename WideFinisher<T, SQUARES, vectors_of_a_warp<T>(SQUARES)>::Storage);
  };
  return std::max({sizeof(Storage<T, kWideLeaf<T>>), finish(std::integral_constant<int, 8>{}),
                   finish(std::integral_constant<int, 16>{}),
                   finish(std::integral_constant<int, 32>{}),
                   finish(std::integral_constant<int, 64>{})});
}

template <typename T>
struct Worker {
  const WideShape shape;
  unsigned char* const memory;
  const std::int64_t bytes;
  const int count;
  const cudaStream_t queue;

  void measure(Matrices<const T> matrices, std::int64_t first) const {
    check(kName,
          cudaMemset2DAsync(memory, std::size_t(bytes), 0, WideParts<T>::zero_bytes(shape.stride),
                            std::size_t(count), queue));
    const int slices = std::max(1, std::min(shape.n / 8, 264 / count));
    launch(wide_measure_kernel<T>, dim3(unsigned(slices * count)), kWideMeasureThreads, 0, queue,
           false, matrices, first, slices, shape.stride, memory, bytes);
  }

  void reduce(Matrices<const T> matrices, std::int64_t first, const Stream& stream) const {
    const int groups = int(std::min<std::int64_t>(count, multiprocessors() / shape.blocks));
    const std::int64_t boxes = std::int64_t(4) * groups * shape.stride;
    Scratch<Mail<T>> mail(kName, stream, boxes);
    check(kName, cudaMemsetAsync(mail, 0, std::size_t(boxes) * sizeof(Mail<T>), queue));
    constexpr int kThreads = WideReducer<T, 1>::kThreads;
    by_size<1, 2, 4, 8>((shape.stride + kThreads - 1) / kThreads, [&](auto per) {
      using Reducer = WideReducer<T, decltype(per)::value>;
      launch(wide_reduce_kernel<T, decltype(per)::value>, dim3(unsigned(groups * shape.blocks)),
             kThreads, Reducer::bytes(shape.stride, shape.shared_rows), queue, true, matrices,
             first, count, shape, memory, bytes, static_cast<Mail<T>*>(mail));
    });
  }

  /// Returns whether the vectors end up in `merged`.
  bool divide_and_conquer() const {
    constexpr int kLeaf = kWideLeaf<T>;
    const auto pieces = [&](int size) { return unsigned((shape.n + size - 1) / size); };
    const unsigned all = unsigned(count);
    launch(wide_leaves_kernel<T>, dim3(pieces(kLeaf), all), Team<T, kLeaf>::kSize,
           sizeof(Storage<T, kLeaf>), queue, false, shape, memory, bytes);
    bool merged = false;
    for (int half = kLeaf; half < shape.n; half *= 2, merged = !merged) {
      const unsigned merges = pieces(2 * half), roots = unsigned(2 * half / kWideRoots);
      launch(wide_prepare_kernel<T>, dim3(merges, all), kWidePrepareThreads,
             wide_prepare_bytes<T>(half), queue, false, shape, half, merged, memory, bytes);
      launch(wide_roots_kernel<T>, dim3(roots, merges, all), kWideRootThreads,
             wide_root_bytes<T>(half), queue, false, shape, half, memory, bytes);
      launch(wide_weights_kernel<T>, dim3(roots, merges, all), kWideRootThreads,
             wide_root_bytes<T>(half), queue, false, shape, half, memory, bytes);
      launch(wide_update_kernel<T>, dim3(unsigned(2 * half / kWideUpdateColumns), merges, all),
             32 * kWideUpdateColumns, wide_update_bytes<T>(half), queue, false, shape, half, memory,
             bytes);
      const unsigned across = unsigned(2 * half / ProductTile<T>::kSize);
      launch(wide_multiply_kernel<T>, dim3(across * across, merges, all), ProductTile<T>::kThreads,
             sizeof(ProductTile<T>), queue, false, shape, half, merged, memory, bytes);
    }
    return merged;
  }

  void finish(bool merged, std::int64_t first, T* values, Matrices<T> vectors, EighOrder order,
              EighStatus* status) const {
    by_size<256, 512, 1024, 2048>(shape.stride, [&](auto size) {
      constexpr int kSquares = decltype(size)::value / 32, kMost = vectors_of_a_warp<T>(kSquares);
      const auto with = [&](auto own) {
        constexpr int kOwn = decltype(own)::value;
        using Finisher = WideFinisher<T, kSquares, kOwn>;
        const unsigned panels = unsigned((shape.n + Finisher::kVectors - 1) / Finisher::kVectors);
        launch(wide_finish_kernel<T, kSquares, kOwn>, dim3(panels, unsigned(count)),
               Finisher::kThreads, sizeof(typename Finisher::Storage), queue, false, shape, merged,
               memory, bytes, first, values, vectors, order, status);
      };
      // One vector per warp finishes sooner, if there are enough multiprocessors.
      const std::int64_t blocks =
          count * std::int64_t(shape.n / WideFinisher<T, kSquares, 1>::kVectors);
      if constexpr (kSquares < 64)
        if (blocks <= 2 * multiprocessors()) return with(std::integral_constant<int, 1>{});
      with(std::integral_constant<int, kMost>{});
    });
  }
};

}  // namespace

template <typename T>
void eigh_wide(Matrices<const T> matrices, T* values, Matrices<T> vectors, EighOrder order,
               EighStatus* status, const Stream& stream) {
  const cudaStream_t queue = native(stream);
  static_assert(largest_storage<T>() == kWideBytes<T> &&
                WideReducer<T, 1>::bytes(128, 0) == kWideReduceBytes<T> + 3 * 128 * sizeof(T));
  const WideShape shape = wide_shape<T>(matrices.n, matrices.batch, this_card());
  const std::int64_t bytes = std::int64_t(WideParts<T>::bytes(shape.stride));
  const std::int64_t at_once =
      std::min(matrices.batch, std::max<std::int64_t>(1, kMostBytes / bytes));
  const Scratch<unsigned char> memory(kName, stream, at_once * bytes);
  for (std::int64_t first = 0; first < matrices.batch; first += at_once) {
    const Worker<T> worker{shape, memory, bytes, int(std::min(at_once, matrices.batch - first)),
                           queue};
    worker.measure(matrices, first);
    worker.reduce(matrices, first, stream);
    worker.finish(worker.divide_and_conquer(), first, values, vectors, order, status);
  }
}

template void eigh_wide(Matrices<const float>, float*, Matrices<float>, EighOrder, EighStatus*,
                        const Stream&);
template void eigh_wide(Matrices<const double>, double*, Matrices<double>, EighOrder, EighStatus*,
                        const Stream&);

}  // namespace keel::cuda
