// One launch for each of forward and backward. Each block sums its part of the activations and keeps the part in
// shared memory, waits for the other blocks of its channels, adds up the sums of all of them, and computes its
// outputs from the kept values. Values that do not fit are read again.

#include <cstdlib>
#include <initializer_list>

#include "lab/models/fused_norm/blocks.cuh"
#include "lab/models/fused_norm/pack.cuh"

namespace keel::lab::cuda {
namespace {

constexpr int kMostPack = 8;

/// Not fmax, which would lose a NaN.
template <typename Number>
__device__ Number not_below_zero(Number x) {
  return x < Number(0) ? Number(0) : x;
}

/// Loads one number per channel.
template <int V>
__device__ void load_channels(const float* from, float (&to)[V]) {
#pragma unroll
  for (int i = 0; i < V; ++i) to[i] = from[i];
}

/// The map from input to output, per channel.
template <int V>
struct Line {
  float mean[V], scale[V], bias[V];
  __device__ Line(const float* means, const float* scales, const float* biases) {
    load_channels(means, mean);
    load_channels(scales, scale);
    load_channels(biases, bias);
  }
  /// Not scale x + offset: if all values of a channel are the same, this returns the bias exactly.
  __device__ float operator()(float x, int i) const {
    return __fmaf_rn(__fsub_rn(x, mean[i]), scale[i], bias[i]);
  }
};

/// Mean of a part and sum of squares about it. All adders of a channel get them. Each warp sums relative to its own
/// first row. So cancellation loses only as many digits as the rows of a warp differ, however far the mean is from
/// zero.
template <typename T, int V, typename Keep>
__device__ float2 moments_of(const Part& part, const Place<V>& at, const T* input, Index channels,
                             const Keep& keep) {
  constexpr int kWidth = Place<V>::kWidth, kAhead = 8;
  __shared__ OfWarps<kWidth> means, squares;
  const bool mine = at.channel < channels;
  float shift[V] = {}, sum[V] = {}, square[V] = {};
  int slot = 0;
  // All lanes of a warp loop as often as the lane with its first row, since they shuffle.
  for (Index row = part.first + at.row, rows_begin = row - at.lane / kPacks; rows_begin < part.last;
       row += kAhead * kRows, rows_begin += kAhead * kRows) {
    Pack<T, V> values[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k)
      if (mine && row + k * kRows < part.last)
        values[k] = load<T, V>(input + (row + k * kRows) * channels);
    if (slot == 0) {
      const Pack<T, V> first = values[0].of_lane(at.lane % kPacks);
      if (mine) first.unpack(shift);
    }
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      if (!mine || row + k * kRows >= part.last) continue;
      keep(slot + k, values[k]);
      float x[V];
      values[k].unpack(x);
#pragma unroll
      for (int i = 0; i < V; ++i) {
        x[i] -= shift[i];
        sum[i] += x[i];
        square[i] = fmaf(x[i], x[i], square[i]);
      }
    }
    slot += kAhead;
  }
  add_rows(sum);
  add_rows(square);
  __syncthreads();  // the previous part has been read
  if (at.lane < kPacks) {
    const float rows = part.rows_of_warp(at.warp), share = rows > 0 ? 1 / rows : 0;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const float mean = sum[i] * share;
      means[at.warp][at.lane * V + i] = shift[i] + mean;
      squares[at.warp][at.lane * V + i] = not_below_zero(square[i] - sum[i] * mean);
    }
  }
  __syncthreads();
  const int channel = int(threadIdx.x) / kAdders;
  if (channel >= kWidth) return {0, 0};
  const float origin = means[0][channel];  // the first warp has rows in every part
  float s = 0, q = 0;
#pragma unroll
  for (int w = int(threadIdx.x) % kAdders; w < kWarps; w += kAdders) {
    const float rows = part.rows_of_warp(w), d = rows > 0 ? means[w][channel] - origin : 0;
    s += rows * d;
    q += squares[w][channel] + rows * d * d;
  }
  s = sum_of_adders(s);
  q = sum_of_adders(q);
  const float mean = s / float(part.last - part.first);
  return {origin + mean, not_below_zero(q - s * mean)};
}

/// The channel of a group of adders.
struct Channel {
  Index index;
  bool mine;  ///< whether these threads have a channel, and it exists
  __device__ Channel(Index tile, int width, Index channels)
      : index(tile * width + threadIdx.x / kAdders),
        mine(int(threadIdx.x) < width * kAdders && index < channels) {}
  /// Whether this thread writes the channel's results: one thread of one block does.
  __device__ bool written_here() const {
    return mine && blockIdx.x == 0 && threadIdx.x % kAdders == 0;
  }
};

/// A channel's moments over all parts.
struct Moments {
  double mean = 0, deviations = 0, inverse = 0;
};

/// Combines the parts' means and squares in float64.
template <int kWidth>
__device__ Moments join_moments(const NormForward& task, const Cut& cut, const float2* pairs) {
  const int channel = min(int(threadIdx.x) / kAdders, kWidth - 1);
  const double origin = double(__ldcg(pairs + channel).x), share = 1 / double(task.rows);
  const Pair total = add_parts<kWidth>(pairs, cut.parts, [&](float2 pair, float2 first, int part) {
    const double d = double(pair.x) - double(first.x),
                 n = double(int(min(cut.rows, task.rows - part * cut.rows)));
    return Pair{n * d, double(pair.y) + n * d * d};
  });
  const double offset = total.x * share;
  const double deviations = not_below_zero(total.y - total.x * offset);
  return {origin + offset, deviations, rsqrt(deviations * share + task.eps)};
}

__device__ void write_statistics(const NormForward& task, Index c, const Moments& moments,
                                 float scale) {
  task.statistics[c] = float(moments.mean);
  task.statistics[task.channels + c] = float(moments.inverse);
  task.statistics[2 * task.channels + c] = scale;
  const double keep = 1 - task.momentum, unbiased = moments.deviations / double(task.rows - 1);
  task.running_mean[c] = float(keep * double(task.running_mean[c]) + task.momentum * moments.mean);
  task.running_variance[c] =
      float(keep * double(task.running_variance[c]) + task.momentum * unbiased);
  if (c == 0) *task.batches += 1;
}

/// `kept` is the number of packs per thread that fit into shared memory.
template <typename T, int V, bool kRelu, bool kResidual>
__global__ void __launch_bounds__(kThreads, 1)
    norm_forward_kernel(NormForward task, Cut cut, int kept) {
  constexpr int kWidth = Place<V>::kWidth, kAhead = kResidual ? 2 : 4;
  extern __shared__ uint4 memory[];
  Pack<T, V>* const keep = reinterpret_cast<Pack<T, V>*>(memory) + threadIdx.x;
  __shared__ float means[kWidth], scales[kWidth];
  Barrier barrier(task.barriers + blockIdx.y);
  const Index channels = task.channels;
  const int slots = int(cut.rows / kRows);
  for (Index tile = blockIdx.y; tile < cut.tiles; tile += gridDim.y) {
    const Place<V> at(tile);
    const Channel own(tile, kWidth, channels);
    const float weight = own.mine ? task.weight[own.index] : 0;
    const T* const input = static_cast<const T*>(task.input) + at.channel;
    float2* const pairs = reinterpret_cast<float2*>(task.scratch) + tile * cut.parts * kWidth;
    int before = 0;  // packs of the previous parts
    for (Index p = blockIdx.x; p < cut.parts; p += gridDim.x, before += slots) {
      const float2 pair = moments_of<T>(Part(cut, p, task.rows), at, input, channels,
                                        [&](int slot, const Pack<T, V>& pack) {
                                          if (before + slot < kept)
                                            keep[(before + slot) * kThreads] = pack;
                                        });
      write_pair<kWidth>(pair, pairs + p * kWidth);
    }
    barrier.wait();
    const Moments moments = join_moments<kWidth>(task, cut, pairs);
    const float scale = float(double(weight) * moments.inverse);
    if (own.mine && threadIdx.x % kAdders == 0) {
      means[threadIdx.x / kAdders] = float(moments.mean);
      scales[threadIdx.x / kAdders] = scale;
    }
    __syncthreads();
    if (own.written_here()) write_statistics(task, own.index, moments, scale);
    if (at.channel >= channels) continue;
    const int column = int(threadIdx.x % kPacks) * V;
    const Line<V> line(means + column, scales + column, task.bias + at.channel);
    const T* const residual = static_cast<const T*>(task.residual) + (kResidual ? at.channel : 0);
    T* const output = static_cast<T*>(task.output) + at.channel;
    before = 0;
    for (Index p = blockIdx.x; p < cut.parts; p += gridDim.x, before += slots) {
      const Part part(cut, p, task.rows);
      int slot = before;
      for (Index row = part.first + at.row; row < part.last;
           row += kAhead * kRows, slot += kAhead) {
        Pack<T, V> x[kAhead], r[kAhead];
#pragma unroll
        for (int k = 0; k < kAhead; ++k) {
          if (row + k * kRows >= part.last) continue;
          const Index offset = (row + k * kRows) * channels;
          if constexpr (kResidual) r[k] = load<T, V>(residual + offset);
          x[k] = slot + k < kept ? keep[(slot + k) * kThreads] : load<T, V>(input + offset);
        }
#pragma unroll
        for (int k = 0; k < kAhead; ++k) {
          if (row + k * kRows >= part.last) continue;
          float y[V], added[V];
          x[k].unpack(y);
          if constexpr (kResidual) r[k].unpack(added);
#pragma unroll
          for (int i = 0; i < V; ++i) {
            y[i] = line(y[i], i);
            if constexpr (kResidual) y[i] += added[i];
            if constexpr (kRelu) y[i] = not_below_zero(y[i]);
          }
          store<T>(y, output + (row + k * kRows) * channels);
        }
      }
    }
  }
}

/// How backward finds where ReLU passes a gradient. Without a residual it recomputes the output from the input, bit
/// for bit, which saves reading the output.
enum class Mask { none, input, output };

/// The gradient that ReLU passes. Like torch's, it also passes where the output is NaN.
template <typename T, int V>
__device__ void pass(const Pack<T, V>& output, float (&gradient)[V]) {
  float y[V];
  output.unpack(y);
#pragma unroll
  for (int i = 0; i < V; ++i) gradient[i] = y[i] <= 0 ? 0 : gradient[i];
}
template <typename T, int V>
__device__ void pass(const Line<V>& line, const float (&x)[V], float (&gradient)[V]) {
  float y[V];
#pragma unroll
  for (int i = 0; i < V; ++i) y[i] = line(x[i], i);
  pass(Pack<T, V>::of(y), gradient);  // rounded as in forward
}

/// Gradient and input of the rows that a thread processes at once.
template <typename T, int V, Mask kMask, int kAhead>
struct GradientRows {
  Pack<T, V> g[kAhead], more[kAhead], x[kAhead], y[kAhead];
  __device__ void read(const NormBackward& task, Index at, int k) {
    g[k] = load<T, V>(static_cast<const T*>(task.dL_doutput) + at);
    if (task.more != nullptr) more[k] = load<T, V>(static_cast<const T*>(task.more) + at);
    x[k] = load<T, V>(static_cast<const T*>(task.input) + at);
    if constexpr (kMask == Mask::output) y[k] = load<T, V>(static_cast<const T*>(task.output) + at);
  }
  /// The gradient that ReLU passes, and the input.
  __device__ void take(const NormBackward& task, const Line<V>& line, int k, float (&passed)[V],
                       float (&values)[V]) const {
    g[k].unpack(passed);
    x[k].unpack(values);
    if (task.more != nullptr) {
      float added[V];
      more[k].unpack(added);
#pragma unroll
      for (int i = 0; i < V; ++i) passed[i] += added[i];
      Pack<T, V>::of(passed).unpack(passed);  // rounded as torch rounds the sum
    }
    if constexpr (kMask == Mask::output) pass(y[k], passed);
    if constexpr (kMask == Mask::input) pass<T>(line, values, passed);
  }
};

/// Adds up a part's sums over its warps. All adders of a channel get the result.
template <int V>
__device__ float2 add_warps(const Place<V>& at, float (&sum)[V], float (&tilt)[V]) {
  constexpr int kWidth = Place<V>::kWidth;
  __shared__ OfWarps<kWidth> sums, tilts;
  add_rows(sum);
  add_rows(tilt);
  __syncthreads();  // the previous part has been read
  if (at.lane < kPacks) {
#pragma unroll
    for (int i = 0; i < V; ++i) {
      sums[at.warp][at.lane * V + i] = sum[i];
      tilts[at.warp][at.lane * V + i] = tilt[i];
    }
  }
  __syncthreads();
  const int channel = int(threadIdx.x) / kAdders;
  if (channel >= kWidth) return {0, 0};
  float2 own{0, 0};
#pragma unroll
  for (int w = int(threadIdx.x) % kAdders; w < kWarps; w += kAdders) {
    own.x += sums[w][channel];
    own.y += tilts[w][channel];
  }
  return {sum_of_adders(own.x), sum_of_adders(own.y)};
}

/// Sums of g and of g (x - mean). g is dL_doutput (plus `more`) where ReLU passes it, otherwise 0; it is also
/// dL_dresidual. A thread keeps pairs of packs, g and x.
template <typename T, int V, Mask kMask, bool kResidual>
__global__ void __launch_bounds__(kThreads, 1)
    norm_backward_kernel(NormBackward task, Cut cut, int kept) {
  constexpr int kWidth = Place<V>::kWidth, kAhead = kMask == Mask::output ? 2 : 3;
  using Rows = GradientRows<T, V, kMask, kAhead>;
  extern __shared__ uint4 memory[];
  Pack<T, V>* const keep = reinterpret_cast<Pack<T, V>*>(memory) + threadIdx.x;
  __shared__ float slopes[kWidth], offsets[kWidth];
  Barrier barrier(task.barriers + blockIdx.y);
  const double share = 1 / double(task.rows);
  const Index channels = task.channels;
  const int slots = int(cut.rows / kRows);
  for (Index tile = blockIdx.y; tile < cut.tiles; tile += gridDim.y) {
    const Place<V> at(tile);
    const bool mine = at.channel < channels;
    const Index channel = mine ? at.channel : 0;
    float2* const pairs = reinterpret_cast<float2*>(task.scratch) + tile * cut.parts * kWidth;
    const Channel own(tile, kWidth, channels);
    const Index c = own.mine ? own.index : 0;
    const double mean = task.statistics[c], inverse = task.statistics[channels + c],
                 scale = task.statistics[2 * channels + c];
    const Line<V> line(task.statistics + channel, task.statistics + 2 * channels + channel,
                       task.bias + channel);  // the compiler drops loads that are not used
    int before = 0;
    for (Index p = blockIdx.x; p < cut.parts; p += gridDim.x, before += slots) {
      const Part part(cut, p, task.rows);
      float sum[V] = {}, tilt[V] = {};
      int slot = before;
      for (Index row = part.first + at.row; mine && row < part.last;
           row += kAhead * kRows, slot += kAhead) {
        Rows rows;
#pragma unroll
        for (int k = 0; k < kAhead; ++k)
          if (row + k * kRows < part.last)
            rows.read(task, (row + k * kRows) * channels + channel, k);
#pragma unroll
        for (int k = 0; k < kAhead; ++k) {
          if (row + k * kRows >= part.last) continue;
          float passed[V], values[V];
          rows.take(task, line, k, passed, values);
          const Pack<T, V> g = Pack<T, V>::of(passed);  // unchanged, or zero
          if constexpr (kResidual)
            store(g, static_cast<T*>(task.dL_dresidual) + (row + k * kRows) * channels + channel);
          if (slot + k < kept) {
            keep[2 * (slot + k) * kThreads] = g;
            keep[(2 * (slot + k) + 1) * kThreads] = rows.x[k];
          }
#pragma unroll
          for (int i = 0; i < V; ++i) {
            sum[i] += passed[i];
            tilt[i] = fmaf(passed[i], values[i] - line.mean[i], tilt[i]);
          }
        }
      }
      write_pair<kWidth>(add_warps(at, sum, tilt), pairs + p * kWidth);
    }
    barrier.wait();
    // dL_dinput = (weight / deviation) g + slope x + offset
    const Pair total = add_parts<kWidth>(pairs, cut.parts, [](float2 pair, float2, int) {
      return Pair{double(pair.x), double(pair.y)};
    });
    const double dL_dweight = total.y * inverse,
                 slope_of_all = -scale * inverse * dL_dweight * share;
    if (own.mine && threadIdx.x % kAdders == 0) {
      slopes[threadIdx.x / kAdders] = float(slope_of_all);
      offsets[threadIdx.x / kAdders] = float(-scale * total.x * share - slope_of_all * mean);
    }
    __syncthreads();
    if (own.written_here()) {
      task.dL_dweight[c] = float(dL_dweight);
      task.dL_dbias[c] = float(total.x);
    }
    if (!mine) continue;
    float slope[V], offset[V];
    load_channels(slopes + (threadIdx.x % kPacks) * V, slope);
    load_channels(offsets + (threadIdx.x % kPacks) * V, offset);
    before = 0;
    for (Index p = blockIdx.x; p < cut.parts; p += gridDim.x, before += slots) {
      const Part part(cut, p, task.rows);
      int slot = before;
      for (Index row = part.first + at.row; row < part.last; row += kRows, ++slot) {
        const Index place = row * channels + channel;
        float passed[V], values[V];
        if (slot < kept) {
          keep[2 * slot * kThreads].unpack(passed);
          keep[(2 * slot + 1) * kThreads].unpack(values);
        } else {
          GradientRows<T, V, kMask, 1> again;
          again.read(task, place, 0);
          again.take(task, line, 0, passed, values);
        }
#pragma unroll
        for (int i = 0; i < V; ++i)
          values[i] = fmaf(line.scale[i], passed[i], fmaf(slope[i], values[i], offset[i]));
        store<T>(values, static_cast<T*>(task.dL_dinput) + place);
      }
    }
  }
}

/// What the GPU has, or less if the environment sets a limit, so that a large GPU can behave like a small one.
int limited(int has, const char* name, int unit) {
  const char* const text = std::getenv(name);
  const int allowed = text ? std::atoi(text) : 0;
  return allowed > 0 ? std::min(has, allowed * unit) : has;
}

/// The blocks wait for each other, so all must run at the same time, one on each multiprocessor. A thread keeps
/// `packs` packs of `bytes` bytes for each of its rows, if they fit.
template <typename Task>
cudaError_t launch(void (*kernel)(Task, Cut, int), const Task& task, const Cut& cut, int packs,
                   int bytes, cudaStream_t stream) {
  int device = 0, processors = 0, most = 0;
  cudaFuncAttributes declared{};
  for (const cudaError_t error :
       {cudaGetDevice(&device),
        cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device),
        cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
        cudaFuncGetAttributes(&declared, kernel)})
    if (error != cudaSuccess) return error;
  processors = limited(processors, "KEEL_MULTIPROCESSORS", 1);
  most = std::max(limited(most, "KEEL_SHARED_MEMORY_KB", 1024), int(declared.sharedSizeBytes));
  const Index down = std::min<Index>(cut.tiles, processors),
              across = std::min(cut.parts, processors / down);
  const Index room = (most - Index(declared.sharedSizeBytes)) / (Index(kThreads) * packs * bytes);
  const Index asked = parts_of(cut.parts, across) * (cut.rows / kRows);
  int kept = int(std::min(room, asked));
  const std::size_t memory = std::size_t(kept) * std::size_t(kThreads * packs * bytes);
  const cudaError_t allowed =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(memory));
  if (allowed != cudaSuccess) return allowed;
  Task of_kernel = task;
  Cut cut_of_kernel = cut;
  void* arguments[] = {&of_kernel, &cut_of_kernel, &kept};
  return cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(kernel),
                                     dim3(unsigned(across), unsigned(down)), dim3(kThreads),
                                     arguments, memory, stream);
}

template <typename T, int V>
cudaError_t forward(const NormForward& task, cudaStream_t stream) {
  auto* const kernel = task.relu ? (task.residual ? norm_forward_kernel<T, V, true, true>
                                                  : norm_forward_kernel<T, V, true, false>)
                                 : (task.residual ? norm_forward_kernel<T, V, false, true>
                                                  : norm_forward_kernel<T, V, false, false>);
  return launch(kernel, task, cut_of<V>(task), 1, sizeof(Pack<T, V>), stream);
}

template <typename T, int V>
cudaError_t backward(const NormBackward& task, cudaStream_t stream) {
  auto* const kernel = !task.relu          ? norm_backward_kernel<T, V, Mask::none, false>
                       : !task.output      ? norm_backward_kernel<T, V, Mask::input, false>
                       : task.dL_dresidual ? norm_backward_kernel<T, V, Mask::output, true>
                                           : norm_backward_kernel<T, V, Mask::output, false>;
  return launch(kernel, task, cut_of<V>(task), 2, sizeof(Pack<T, V>), stream);
}

/// Whether all activations can be read 16 bytes at a time.
template <typename T>
bool packs(Index channels, std::initializer_list<const void*> activations) {
  bool aligned = channels % Index(16 / sizeof(T)) == 0;
  for (const void* pointer : activations)
    aligned = aligned && reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0;
  return aligned;
}

template <typename T>
cudaError_t forward_of(const NormForward& task, cudaStream_t stream) {
  return packs<T>(task.channels, {task.input, task.residual, task.output})
             ? forward<T, 16 / sizeof(T)>(task, stream)
             : forward<T, 1>(task, stream);
}
template <typename T>
cudaError_t backward_of(const NormBackward& task, cudaStream_t stream) {
  return packs<T>(task.channels, {task.dL_doutput, task.more, task.output, task.input,
                                  task.dL_dinput, task.dL_dresidual})
             ? backward<T, 16 / sizeof(T)>(task, stream)
             : backward<T, 1>(task, stream);
}

}  // namespace

std::size_t norm_scratch(std::int64_t channels) {
  // At most one pair for each channel of each part.
  const std::int64_t widest = kPacks * kMostPack;
  return std::size_t(2 * std::max(kParts * widest, channels + widest));
}

std::size_t norm_barriers(std::int64_t channels) {
  return std::size_t(parts_of(channels, kPacks));  // the narrowest tiles have packs of one number
}

cudaError_t norm_forward(const NormForward& task, cudaStream_t stream) {
  return task.bfloat16 ? forward_of<__nv_bfloat16>(task, stream) : forward_of<float>(task, stream);
}

cudaError_t norm_backward(const NormBackward& task, cudaStream_t stream) {
  return task.bfloat16 ? backward_of<__nv_bfloat16>(task, stream)
                       : backward_of<float>(task, stream);
}

}  // namespace keel::lab::cuda
