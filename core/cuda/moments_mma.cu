// The passes of moments over channels that fill slabs of 64, which reach the speed of the memory.

#include "moments_mma.h"

#include <algorithm>

#include "moments_slabs.cuh"
#include "scratch.h"

namespace keel::cuda {
namespace {

constexpr std::int64_t kMultiprocessors = 132;  // of an H200; on any other card, the same sums

template <typename T, bool LAST, bool SAME, bool NARROW>
void launch(const char* operation, const MomentsTask<T>& task, const Stream& stream) {
  constexpr int kBytes = MomentsMma<T, LAST, SAME, NARROW>::kBytes;
  check(operation, cudaFuncSetAttribute(multiply_slabs<T, LAST, SAME, NARROW>,
                                        cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
  check(operation,
        launch_early(multiply_slabs<T, LAST, SAME, NARROW>, unsigned(task.chunks * task.pairs),
                     kTileThreads, kBytes, native(stream), task));
}

template <typename T, bool LAST, bool SAME>
void launch(const char* operation, const MomentsTask<T>& task, const Stream& stream) {
  if (task.slabs.group_size <= 16)
    launch<T, LAST, SAME, true>(operation, task, stream);
  else
    launch<T, LAST, SAME, false>(operation, task, stream);
}

template <typename T, bool LAST>
void launch(const char* operation, const MomentsTask<T>& task, const Stream& stream) {
  if (task.shift != nullptr)
    launch<T, LAST, true>(operation, task, stream);
  else
    launch<T, LAST, false>(operation, task, stream);
}

}  // namespace

template <typename T>
bool plan_on_full_slabs(MomentsTask<T>& task, const Activations<const T>& left,
                        const Activations<const T>& right) {
  const Slabs& slabs = task.slabs;
  if (!fills_slabs<T>(slabs.channels, slabs.group_size)) return false;
  const Slabs full = Slabs::of(slabs.channels, kSlots, kPack);
  task.left = source(left, full);
  task.right = source(right, full);
  task.pairs = full.count;
  // A set of sums takes about half the room of the samples that it sums up, at most.
  const std::int64_t shortest = std::max(128, 4 * slabs.group_size);
  task.chunks = std::clamp<std::int64_t>(kMultiprocessors / full.count, 1,
                                         pieces<std::int64_t>(left.samples(), shortest));
  const std::int64_t tiles = pieces<std::int64_t>(left.samples(), kTileSamples);
  task.chunks = evenly(tiles, task.chunks, task.shift != nullptr ? kTileWarps : kTileWarps / 2);
  task.set_size = std::int64_t(slabs.channels) * (slabs.group_size + 1);
  return true;
}

template <typename T>
void multiply_on_full_slabs(const char* operation, const MomentsTask<T>& task,
                            const Stream& stream) {
  if (task.left.layout.channels_last)
    launch<T, true>(operation, task, stream);
  else
    launch<T, false>(operation, task, stream);
}

#define KEEL_INSTANTIATE(T)                                                         \
  template bool plan_on_full_slabs<T>(MomentsTask<T>&, const Activations<const T>&, \
                                      const Activations<const T>&);                 \
  template void multiply_on_full_slabs<T>(const char*, const MomentsTask<T>&, const Stream&);
KEEL_INSTANTIATE(float)
KEEL_INSTANTIATE(Half)
KEEL_INSTANTIATE(BFloat16)
#undef KEEL_INSTANTIATE

}  // namespace keel::cuda
