// The passes of affine for channels that fill slabs of 64. They reach memory bandwidth.

#include "cuda/affine/task.h"

#include <algorithm>

#include "cuda/affine/slabs.cuh"
#include "cuda/affine/small.cuh"
#include "cuda/launch/launch.h"
#include "cuda/plan.h"

namespace keel::cuda {
namespace {

/// Distributes the tiles of every slab over at most `blocks` blocks, in which `teams` teams take
/// one tile at a time. Returns the number of blocks.
template <typename T>
unsigned share_out(AffineTask<T>& task, int tile, std::int64_t blocks, int teams) {
  task.tiles = pieces<std::int64_t>(task.layout.samples, tile);
  task.stride = std::clamp<std::int64_t>(blocks / task.slabs.count, 1, task.tiles);
  task.stride = evenly(task.tiles, task.stride, teams);
  return unsigned(task.slabs.count * task.stride);
}

template <typename T, bool LAST, int D, bool ADDS>
bool launch_mma(const char* operation, AffineTask<T>& task, const Stream& stream) {
  using Mma = AffineMma<T, LAST, D, ADDS>;
  constexpr int kBytesOfTerm = CoefficientParts<LAST, D>::kNumbers * int(sizeof(float));
  static_assert(Mma::kRingBytes + 2 * kBytesOfTerm <= 226 << 10);
  const int bytes = Mma::kRingBytes + task.term_count * kBytesOfTerm;
  if (!fits_a_block_of<affine_slabs<T, LAST, D, ADDS>>(bytes)) return false;
  const unsigned blocks = share_out(task, Mma::kSamples, multiprocessors(), Mma::kWarps);
  // Without inputs_ready, do not launch early: blocks that waited inside for the single long block
  // of layer_matrix were slower afterwards than newly started ones.
  launch(operation, affine_slabs<T, LAST, D, ADDS>,
         {.blocks = blocks, .threads = Mma::kThreads, .bytes = bytes, .early = task.inputs_ready},
         stream, task);
  return true;
}

template <typename T, bool LAST, int D>
bool run_mma(const char* operation, AffineTask<T>& task, const Stream& stream) {
  return task.residual.data != nullptr ? launch_mma<T, LAST, D, true>(operation, task, stream)
                                       : launch_mma<T, LAST, D, false>(operation, task, stream);
}

template <typename T, bool LAST, int D, int TERMS, bool ADDS>
void launch_small(const char* operation, AffineTask<T>& task, const Stream& stream) {
  const unsigned blocks =
      share_out(task, kSmallSamples, multiprocessors() * kSmallBlocks<TERMS>, 1);
  launch(operation, affine_small<T, D, LAST, TERMS, ADDS>,
         {.blocks = blocks, .threads = kSmallThreads<D>, .early = true}, stream, task);
}

template <typename T, bool LAST, int D>
bool run_small(const char* operation, AffineTask<T>& task, const Stream& stream) {
  // Leave data that cannot be moved 16 bytes at a time to the general kernel.
  if (!task.output_fours || !aligned(task.output, 16)) return false;
  for (int term = 0; term < task.term_count; ++term)
    if (!task.terms[term].input.vectors) return false;
  if (task.residual.data != nullptr && !task.residual.vectors) return false;
  if (task.residual.data != nullptr)
    launch_small<T, LAST, D, 1, true>(operation, task, stream);
  else if (task.term_count == 1)
    launch_small<T, LAST, D, 1, false>(operation, task, stream);
  else
    launch_small<T, LAST, D, 2, false>(operation, task, stream);
  return true;
}

template <typename T, bool LAST>
bool run(const char* operation, AffineTask<T>& task, const Stream& stream) {
  const int d = task.slabs.group_size;
  if (affine_path(task.slabs.channels, d) == AffinePath::small)
    return by_size<4, 8>(d, [&](auto size) {
      return run_small<T, LAST, decltype(size)::value>(operation, task, stream);
    });
  return by_small_size(d, [&](auto size) {
    return run_mma<T, LAST, decltype(size)::value>(operation, task, stream);
  });
}

}  // namespace

template <typename T>
bool run_on_full_slabs(const char* operation, AffineTask<T>& task, const Stream& stream) {
  if (affine_path(task.slabs.channels, task.slabs.group_size) == AffinePath::general) return false;
  return task.layout.channels_last ? run<T, true>(operation, task, stream)
                                   : run<T, false>(operation, task, stream);
}

template bool run_on_full_slabs<float>(const char*, AffineTask<float>&, const Stream&);
template bool run_on_full_slabs<Half>(const char*, AffineTask<Half>&, const Stream&);
template bool run_on_full_slabs<BFloat16>(const char*, AffineTask<BFloat16>&, const Stream&);

}  // namespace keel::cuda
