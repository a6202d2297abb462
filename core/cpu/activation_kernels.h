#pragma once

// The inner loops of moments and affine, compiled once per instruction set like those of kernels.h.

#include <cstdint>

#include "keel/activations.h"

namespace keel::cpu {

/// The kernels read arrays of one number per channel in whole vectors. So such an array is padded
/// by this many elements.
inline constexpr std::int64_t kChannelPadding = 64 / sizeof(float);

/// Activations as the kernels see them. Sample k of channel c is at
///     (k / positions) * batch_stride + (k % positions) * sample_stride + c * channel_stride
/// with either sample_stride or channel_stride 1.
template <typename T>
struct Columns {
  T* data;
  T* end;  ///< of the memory that may be touched
  std::int64_t positions;
  std::int64_t batch_stride;
  std::int64_t sample_stride;
  std::int64_t channel_stride;
};

/// Two ranges of channels whose products are summed together: one group or several small groups
/// (then left and right are the same range), or a pair of blocks of a large group.
struct MomentBlock {
  std::int64_t left, left_width;
  std::int64_t right, right_width;
  bool symmetric;  ///< left and right are the same data: the lower triangle is enough
  bool gated;      ///< the left activations have a gate, which needs scratch memory
};

template <typename T>
struct MomentsTask {
  using A = Accumulator<T>;
  Columns<const T> left, right;
  const A* left_center;   ///< subtracted, padded by kChannelPadding
  const A* right_center;  ///< the same
  std::int64_t group_size;
  Columns<const T> left_gate = {};  ///< no data: no gate; with a gate, the left center is zero
  bool left_is_centred = false;     ///< the left center is zero
};

template <typename T>
struct AffineTask {
  using A = Accumulator<T>;
  int inputs;  ///< 1 or 2
  Columns<const T> input[2];
  const A* center[2];  ///< subtracted, padded by kChannelPadding
  const A* matrix;     ///< for each channel of the output, inputs x group_size coefficients
  const A* bias;
  Columns<T> output;
  std::int64_t group_size;
  A least;                         ///< smaller results are replaced by this
  bool first_is_centred = false;   ///< the first center is zero
  Columns<const T> gate = {};      ///< of the first input, whose center is then zero; no data: none
  Columns<const T> residual = {};  ///< added to the output; no data: none
  const A* zeros = nullptr;        ///< the center of the residual, padded by kChannelPadding
  /// If not null, used instead of `matrix`, where a sample's channels are contiguous: for each group
  /// inputs x group_size columns, each padded to whole vectors.
  const A* by_sample = nullptr;

  /// The number of tiles that the kernel needs scratch memory for.
  int tiles() const {
    return inputs + 1 + (gate.data != nullptr ? 1 : 0) + (residual.data != nullptr ? 1 : 0);
  }
};

template <typename T>
struct ActivationKernels {
  using A = Accumulator<T>;
  int lanes;

  /// Adds the samples [first, first + count), at most `moments_tile` of them, to `sum` (one entry
  /// per left channel; may be null) and to `second` (group_size entries per left channel).
  std::int64_t moments_tile;
  std::int64_t (*moments_scratch)(const MomentBlock& block);
  void (*moments)(const MomentsTask<T>& task, const MomentBlock& block, std::int64_t first,
                  std::int64_t count, double* sum, double* second, A* scratch);

  /// Writes the samples [first, first + count), at most `affine_tile` of them, of the whole groups
  /// in channels [channel, channel + width).
  std::int64_t affine_tile;
  std::int64_t affine_sample_tile;  ///< replaces affine_tile if the task has by_sample
  std::int64_t (*affine_scratch)(int tiles, std::int64_t width);
  void (*affine)(const AffineTask<T>& task, std::int64_t channel, std::int64_t width,
                 std::int64_t first, std::int64_t count, A* scratch);
};

/// The kernels for the instruction set of kernels<float>().
template <typename T>
const ActivationKernels<T>& activation_kernels();

}  // namespace keel::cpu
