#include "cuda/eigh/paths.h"

#include <algorithm>
#include <type_traits>

#include "cuda/eigh/wide/finish.cuh"
#include "cuda/eigh/wide/leaves.cuh"
#include "cuda/eigh/wide/measure.cuh"
#include "cuda/eigh/wide/merge.cuh"
#include "cuda/eigh/wide/multiply.cuh"
#include "cuda/eigh/wide/reduce.cuh"
#include "cuda/launch/launch.h"
#include "cuda/plan.h"
#include "instantiate.h"

namespace keel::cuda {

namespace {

constexpr const char* kName = "keel::eigh";

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
  const bool* const wanted;  ///< null, or of the matrices in flight
  const Stream& stream;

  void measure(Matrices<const T> matrices, std::int64_t first) const {
    check(kName,
          cudaMemset2DAsync(memory, std::size_t(bytes), 0, WideParts<T>::zero_bytes(shape.stride),
                            std::size_t(count), native(stream)));
    const int slices = std::max(1, std::min(shape.n / 8, 264 / count));
    launch(kName, wide_measure_kernel<T>,
           {.blocks = dim3(unsigned(slices * count)), .threads = kWideMeasureThreads}, stream,
           matrices, first, slices, shape.stride, memory, bytes, wanted);
  }

  void reduce(Matrices<const T> matrices, std::int64_t first) const {
    const int groups = int(std::min<std::int64_t>(count, multiprocessors() / shape.blocks));
    const std::int64_t boxes = std::int64_t(4) * groups * shape.stride;
    Scratch<Mail<T>> mail(kName, stream, boxes);
    check(kName, cudaMemsetAsync(mail, 0, std::size_t(boxes) * sizeof(Mail<T>), native(stream)));
    constexpr int kThreads = WideReducer<T, 1>::kThreads;
    by_size<1, 2, 4, 8>((shape.stride + kThreads - 1) / kThreads, [&](auto per) {
      using Reducer = WideReducer<T, decltype(per)::value>;
      launch(kName, wide_reduce_kernel<T, decltype(per)::value>,
             {.blocks = dim3(unsigned(groups * shape.blocks)),
              .threads = kThreads,
              .bytes = Reducer::bytes(shape.stride, shape.shared_rows),
              .together = true},
             stream, matrices, first, count, shape, memory, bytes, wanted,
             static_cast<Mail<T>*>(mail));
    });
  }

  /// Returns whether the vectors end up in `merged`.
  bool divide_and_conquer() const {
    constexpr int kLeaf = kWideLeaf<T>;
    const auto pieces = [&](int size) { return unsigned((shape.n + size - 1) / size); };
    const unsigned all = unsigned(count);
    launch(kName, wide_leaves_kernel<T>,
           {.blocks = dim3(pieces(kLeaf), all),
            .threads = Team<T, kLeaf>::kSize,
            .bytes = sizeof(Storage<T, kLeaf>)},
           stream, shape, memory, bytes, wanted);
    bool merged = false;
    for (int half = kLeaf; half < shape.n; half *= 2, merged = !merged) {
      const unsigned merges = pieces(2 * half), roots = unsigned(2 * half / kWideRoots);
      launch(kName, wide_prepare_kernel<T>,
             {.blocks = dim3(merges, all),
              .threads = kWidePrepareThreads,
              .bytes = wide_prepare_bytes<T>(half)},
             stream, shape, half, merged, memory, bytes, wanted);
      launch(kName, wide_roots_kernel<T>,
             {.blocks = dim3(roots, merges, all),
              .threads = kWideRootThreads,
              .bytes = wide_root_bytes<T>(half)},
             stream, shape, half, memory, bytes, wanted);
      launch(kName, wide_weights_kernel<T>,
             {.blocks = dim3(roots, merges, all),
              .threads = kWideRootThreads,
              .bytes = wide_root_bytes<T>(half)},
             stream, shape, half, memory, bytes, wanted);
      launch(kName, wide_update_kernel<T>,
             {.blocks = dim3(unsigned(2 * half / kWideUpdateColumns), merges, all),
              .threads = 32 * kWideUpdateColumns,
              .bytes = wide_update_bytes<T>(half)},
             stream, shape, half, memory, bytes, wanted);
      const unsigned across = unsigned(2 * half / ProductTile<T>::kSize);
      launch(kName, wide_multiply_kernel<T>,
             {.blocks = dim3(across * across, merges, all),
              .threads = ProductTile<T>::kThreads,
              .bytes = sizeof(ProductTile<T>)},
             stream, shape, half, merged, memory, bytes, wanted);
    }
    return merged;
  }

  void finish(bool merged, std::int64_t first, T* values, Matrices<T> vectors, EighOrder order,
              EighStatus* status) const {
    by_wide_size(shape.stride, [&](auto size) {
      constexpr int kSquares = decltype(size)::value / 32, kMost = vectors_of_a_warp<T>(kSquares);
      const auto with = [&](auto own) {
        constexpr int kOwn = decltype(own)::value;
        using Finisher = WideFinisher<T, kSquares, kOwn>;
        const unsigned panels = unsigned((shape.n + Finisher::kVectors - 1) / Finisher::kVectors);
        launch(kName, wide_finish_kernel<T, kSquares, kOwn>,
               {.blocks = dim3(panels, unsigned(count)),
                .threads = Finisher::kThreads,
                .bytes = sizeof(typename Finisher::Storage)},
               stream, shape, merged, memory, bytes, wanted, first, values, vectors, order, status);
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
               EighStatus* status, EighWanted wanted, const Stream& stream) {
  static_assert(largest_storage<T>() == kWideBytes<T> &&
                WideReducer<T, 1>::bytes(128, 0) == kWideReduceBytes<T> + 3 * 128 * sizeof(T));
  const WideShape shape = wide_shape<T>(matrices.n, matrices.batch, this_card());
  const std::int64_t bytes = std::int64_t(WideParts<T>::bytes(shape.stride));
  const std::int64_t at_once =
      std::min(matrices.batch, std::max<std::int64_t>(1, kWideMemory / bytes));
  const Scratch<unsigned char> memory(kName, stream, at_once * bytes);
  for (std::int64_t first = 0; first < matrices.batch; first += at_once) {
    const Worker<T> worker{shape,
                           memory,
                           bytes,
                           int(std::min(at_once, matrices.batch - first)),
                           wanted == nullptr ? wanted : wanted + first,
                           stream};
    worker.measure(matrices, first);
    worker.reduce(matrices, first);
    worker.finish(worker.divide_and_conquer(), first, values, vectors, order, status);
  }
}

#define KEEL_STAGES(T) KEEL_STAGE(eigh_wide, T)
KEEL_FOR_REAL(KEEL_STAGES)
#undef KEEL_STAGES

}  // namespace keel::cuda
