#include "keel/moments.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "activations_check.h"
#include "cuda/activations/gate.h"
#include "cuda/affine/task.h"
#include "cuda/launch/launch.h"
#include "cuda/moments/finish.cuh"
#include "cuda/moments/kernel.cuh"
#include "cuda/moments/mma.h"
#include "cuda/whiten/shortcuts.h"
#include "instantiate.h"

namespace keel::cuda {
namespace {

/// Plans the main launch. It depends on the sizes only, so the order of every sum does too.
template <typename T>
void plan(MomentsTask<T>& task, int R, bool same, std::int64_t samples) {
  using A = Accumulator<T>;
  const int parts = task.slabs.parts, across = task.slabs.padded / R;
  task.lower = task.shift != nullptr;
  const int pairs_of_group = parts == 1 ? 1 : task.lower ? parts * (parts + 1) / 2 : parts * parts;
  task.pairs = task.slabs.count / parts * pairs_of_group;
  task.tiles = task.slabs.groups_per_slab * (same ? across * (across + 1) / 2 : across * across);
  task.teams = std::max(1, kMomentsThreads / task.tiles);
  const int most = same ? kMomentsSamples<A, true> : kMomentsSamples<A, false>;
  // Give each team the same number of groups of four rows, if at most an eighth of a tile stays
  // empty.
  const int even = most / 4 / task.teams * task.teams * 4 / 8 * 8;
  task.rows = even * 8 >= most * 7 ? even : most;

  // A set of sums takes less than half the memory of the samples that it sums.
  const std::int64_t shortest = std::max(128, 4 * task.slabs.group_size);
  const std::int64_t blocks = kFixedMultiprocessors * blocks_at_once<A>(R);
  const std::int64_t chunks =
      std::max<std::int64_t>(1, std::min(blocks / task.pairs, samples / shortest));
  task.chunk = int(pieces<std::int64_t>(pieces(samples, chunks), 8) * 8);
  task.chunks = pieces<std::int64_t>(samples, task.chunk);
  task.set_size = std::int64_t(task.slabs.channels) * (task.slabs.group_size + 1);
}

template <typename T, int R, bool SAME>
void queue_sums(const char* operation, const MomentsTask<T>& task, const Stream& stream) {
  launch(operation, sum_products<T, R, SAME>,
         {.blocks = unsigned(task.chunks * task.pairs),
          .threads = kMomentsThreads,
          .bytes = MomentsBlock<T, R, SAME>::kBytes},
         stream, task);
}

/// Sums over chunks of samples, then over the chunks. `make_result` is called with the address of
/// the shift (null if there are no samples or no shift is wanted).
template <typename T, int R, typename MakeResult>
void run(const char* operation, const Activations<const T>& left, const Activations<const T>& right,
         const Accumulator<T>* center, Matrices<const Accumulator<T>> covariance, bool shifted,
         const MakeResult& make_result, const Stream& stream) {
  using A = Accumulator<T>;
  const int channels = int(left.channels), d = int(left.group_size());
  const std::int64_t samples = left.samples();
  Scratch<A> shift(operation, stream, shifted && samples > 0 ? channels : 0);

  MomentsTask<T> task;
  task.slabs = Slabs::of(channels, d, R);
  task.left = source(left, task.slabs);
  task.right = source(right, task.slabs);
  task.center = center;
  task.shift = shift;
  task.covariance = covariance;
  const bool same = shifted && task.slabs.parts == 1;
  bool full_slabs = false;
  if constexpr (sizeof(A) == 4) full_slabs = samples > 0 && plan_on_full_slabs(task, left, right);
  if (samples > 0 && !full_slabs) plan(task, R, same, samples);
  Scratch<double> sets(operation, stream, task.chunks * task.set_size);
  task.sets = sets;
  if (full_slabs) {
    if constexpr (sizeof(A) == 4) multiply_on_full_slabs(operation, task, stream);
  } else if (samples > 0) {
    if (same)
      queue_sums<T, R, true>(operation, task, stream);
    else
      queue_sums<T, R, false>(operation, task, stream);
  }

  const auto result = make_result(static_cast<const A*>(shift));
  const auto overflow = [&] {
    if constexpr (sizeof(A) == 4)
      return OverflowedSums<T>{left.data, right.data, SampleLayout::of(left), shift,
                               shifted ? static_cast<const A*>(shift) : center};
    else
      return NoOverflow{};
  }();
  using Result = std::decay_t<decltype(result)>;
  const std::int64_t entries = left.groups * entries_of_group<Result>(d);
  const dim3 block = finish_block(task.chunks);
  launch(
      operation, add_sets<Result, std::decay_t<decltype(overflow)>>,
      {.blocks = unsigned(pieces<std::int64_t>(entries, block.x)), .threads = block, .early = true},
      stream, result, overflow, task.sets, task.set_size, int(task.chunks), channels, d);
}

template <typename T, typename MakeResult>
void sum(const char* operation, const Activations<const T>& left, const Activations<const T>& right,
         const Accumulator<T>* center, Matrices<const Accumulator<T>> covariance, bool shifted,
         const MakeResult& make_result, const Stream& stream) {
  require_countable(operation, left);
  if (left.channels == 0) return;
  if constexpr (sizeof(Accumulator<T>) == 4)
    if (moments_tile<Accumulator<T>>(left.group_size()) == 8)
      return run<T, 8>(operation, left, right, center, covariance, shifted, make_result, stream);
  run<T, 4>(operation, left, right, center, covariance, shifted, make_result, stream);
}

}  // namespace

template <typename T>
void partial_moments(Activations<const T> input, const double* wanted, double* sums,
                     const Stream& stream) {
  check_partial_moments("keel::partial_moments", input, sums);
  sum<T>(
      "keel::partial_moments", input, input, nullptr, {}, true,
      [&](const Accumulator<T>* shift) {
        return PartialResult<Accumulator<T>>{sums, wanted, shift, double(input.samples()),
                                             int(input.channels)};
      },
      stream);
}

template <typename A>
void moments_from_partial(const double* sums, const double* shift, A* mean, Matrices<A> covariance,
                          const Stream& stream) {
  check_moments_from_partial("keel::moments_from_partial", sums, mean, covariance);
  constexpr std::int64_t kThreads = 128;
  const std::int64_t entries = covariance.batch * covariance.n * covariance.n;
  if (entries == 0) return;
  finish_partial<A><<<unsigned(pieces(entries, kThreads)), kThreads, 0, native(stream)>>>(
      sums, shift, mean, covariance);
  check_launch("keel::moments_from_partial");
}
template void moments_from_partial(const double*, const double*, float*, Matrices<float>,
                                   const Stream&);
template void moments_from_partial(const double*, const double*, double*, Matrices<double>,
                                   const Stream&);

template <typename T>
void moments(Activations<const T> input, Accumulator<T>* mean, Matrices<Accumulator<T>> covariance,
             const Stream& stream) {
  check_moments("keel::moments", input, mean, covariance);
  const double count =
      input.samples() > 0 ? double(input.samples()) : std::numeric_limits<double>::quiet_NaN();
  sum<T>(
      "keel::moments", input, input, nullptr, {}, true,
      [&](const Accumulator<T>* shift) {
        return MomentsResult<Accumulator<T>>{mean, covariance, shift, count};
      },
      stream);
}

template <typename T>
void cross_moments(Activations<const T> left, Activations<const T> right,
                   const Accumulator<T>* center, Accumulator<T>* sums,
                   Matrices<Accumulator<T>> cross, const Stream& stream) {
  check_cross_moments("keel::cross_moments", left, right, sums, cross);
  const WithoutGate<T> plain("keel::cross_moments", left, stream);
  cross_moments_about_mean<T>(plain, right, center, {}, sums, cross, stream);
}

template <typename T>
void cross_moments_about_mean(Activations<const T> left, Activations<const T> right,
                              const Accumulator<T>* mean, Matrices<const Accumulator<T>> covariance,
                              Accumulator<T>* sums, Matrices<Accumulator<T>> cross,
                              const Stream& stream) {
  check_cross_moments("keel::cross_moments", left, right, sums, cross);
  sum<T>(
      "keel::cross_moments", left, right, mean, covariance, false,
      [&](const Accumulator<T>*) {
        return CrossResult<Accumulator<T>>{sums, cross};
      },
      stream);
}

#define KEEL_STAGES(T)           \
  KEEL_STAGE(partial_moments, T) \
  KEEL_STAGE(moments, T)         \
  KEEL_STAGE(cross_moments, T)   \
  KEEL_STAGE(cross_moments_about_mean, T)
KEEL_FOR_STORED(KEEL_STAGES)
#undef KEEL_STAGES

}  // namespace keel::cuda
