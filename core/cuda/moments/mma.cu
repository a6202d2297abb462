// The tensor-core passes of moments, for channels that fill slabs of 64. They reach memory
// bandwidth.

#include "cuda/moments/mma.h"

#include <algorithm>
#include <type_traits>

#include "cuda/launch/launch.h"
#include "cuda/moments/slabs.cuh"
#include "instantiate.h"

namespace keel::cuda {
namespace {

template <typename T, bool LAST, bool SAME, int WIDTH>
struct Kernel {
  static constexpr auto run = multiply_slabs<T, LAST, SAME, WIDTH>;
  static constexpr int kBytes = MomentsRing<T, LAST, SAME, WIDTH>::kBytes;
};

template <typename Body>
auto by_flag(bool flag, const Body& body) {
  return flag ? body(std::true_type{}) : body(std::false_type{});
}

/// Calls body with the Kernel for the task's layout, sides and group size.
template <typename T, typename Body>
auto by_kernel(const MomentsTask<T>& task, const Body& body) {
  return by_flag(task.left.layout.channels_last, [&](auto last) {
    return by_flag(task.shift != nullptr, [&](auto same) {
      constexpr bool kLast = decltype(last)::value, kSame = decltype(same)::value;
      const int d = task.slabs.group_size;
      return d <= 16   ? body(Kernel<T, kLast, kSame, 16>{})
             : d <= 32 ? body(Kernel<T, kLast, kSame, 32>{})
                       : body(Kernel<T, kLast, kSame, 64>{});
    });
  });
}

}  // namespace

template <typename T>
bool plan_on_full_slabs(MomentsTask<T>& task, const Activations<const T>& left,
                        const Activations<const T>& right) {
  const Slabs& slabs = task.slabs;
  if (moments_path(slabs.channels, slabs.group_size) != MomentsPath::tensor_cores) return false;
  if (!by_kernel(task, [](auto kernel) { return fits_a_block_of<kernel.run>(kernel.kBytes); }))
    return false;
  const Slabs full = Slabs::of(slabs.channels, kSlots, kPack);
  task.left = source(left, full);
  task.right = source(right, full);
  task.pairs = full.count;
  // A set of sums takes at most about half the memory of the samples that it sums.
  const std::int64_t shortest = std::max(128, 4 * slabs.group_size);
  task.chunks = std::clamp<std::int64_t>(kFixedMultiprocessors / full.count, 1,
                                         pieces<std::int64_t>(left.samples(), shortest));
  const std::int64_t tiles = pieces<std::int64_t>(left.samples(), kTileSamples);
  task.chunks = evenly(tiles, task.chunks, task.shift != nullptr ? kTileWarps : kTileWarps / 2);
  task.set_size = std::int64_t(slabs.channels) * (slabs.group_size + 1);
  return true;
}

template <typename T>
void multiply_on_full_slabs(const char* operation, const MomentsTask<T>& task,
                            const Stream& stream) {
  by_kernel(task, [&](auto kernel) {
    launch(operation, kernel.run,
           {.blocks = unsigned(task.chunks * task.pairs),
            .threads = kTileThreads,
            .bytes = kernel.kBytes,
            .early = true},
           stream, task);
  });
}

#define KEEL_STAGES(T)              \
  KEEL_STAGE(plan_on_full_slabs, T) \
  KEEL_STAGE(multiply_on_full_slabs, T)
KEEL_STAGES(float)
KEEL_STAGES(Half)
KEEL_STAGES(BFloat16)
#undef KEEL_STAGES

}  // namespace keel::cuda
