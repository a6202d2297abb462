#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <initializer_list>

#include "lab/models/fused_norm_kernels.h"

namespace keel::lab::cuda {
namespace {

using Index = std::int64_t;

// A block takes 8 packs of a row, 128 bytes where a pack has 16, and as many rows at once as its threads allow.
constexpr int kPacks = 8;
constexpr int kSumThreads = 512, kSumRows = kSumThreads / kPacks, kWarps = kSumThreads / 32;
constexpr int kWarpRows = 32 / kPacks;
constexpr int kMapThreads = 256, kMapRows = kMapThreads / kPacks;
/// Blocks that sum, about. A number of the code, not of the GPU: it decides the order of the sums.
constexpr Index kSumBlocks = 132;
constexpr int kMostPack = 8;

__device__ float widened(float x) { return x; }
__device__ float widened(__half x) { return __half2float(x); }
__device__ float widened(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ void narrow(float x, float& to) { to = x; }
__device__ void narrow(float x, __half& to) { to = __float2half_rn(x); }
__device__ void narrow(float x, __nv_bfloat16& to) { to = __float2bfloat16_rn(x); }

/// Neighbouring channels of a row, read and written at once: 16 bytes, held as they come until their numbers are asked
/// for (apart, 16-bit numbers would take a register each), or one number.
template <typename T, int V>
struct Pack {
  uint4 words;
  __device__ void unpack(float (&to)[V]) const;
  __device__ static Pack of(const float (&from)[V]);
};
template <typename T>
struct Pack<T, 1> {
  T value;
  __device__ void unpack(float (&to)[1]) const { to[0] = widened(value); }
  __device__ static Pack of(const float (&from)[1]) {
    Pack result;
    narrow(from[0], result.value);
    return result;
  }
};

__device__ float2 halves(unsigned word, __half2*) {
  return __half22float2(*reinterpret_cast<__half2*>(&word));
}
__device__ float2 halves(unsigned word, __nv_bfloat162*) {
  return {__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u)};
}
__device__ unsigned word_of(float low, float high, __half2*) {
  const __half2 both = __floats2half2_rn(low, high);
  return *reinterpret_cast<const unsigned*>(&both);
}
__device__ unsigned word_of(float low, float high, __nv_bfloat162*) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const unsigned*>(&both);
}
template <typename T>
struct PairOf;
template <>
struct PairOf<__half> {
  using Type = __half2;
};
template <>
struct PairOf<__nv_bfloat16> {
  using Type = __nv_bfloat162;
};

template <typename T, int V>
__device__ void Pack<T, V>::unpack(float (&to)[V]) const {
  const unsigned word[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (V == 4) {
      to[i] = __uint_as_float(word[i]);
    } else {
      const float2 two = halves(word[i], static_cast<typename PairOf<T>::Type*>(nullptr));
      to[2 * i] = two.x;
      to[2 * i + 1] = two.y;
    }
  }
}

template <typename T, int V>
__device__ Pack<T, V> Pack<T, V>::of(const float (&from)[V]) {
  unsigned word[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (V == 4)
      word[i] = __float_as_uint(from[i]);
    else
      word[i] =
          word_of(from[2 * i], from[2 * i + 1], static_cast<typename PairOf<T>::Type*>(nullptr));
  }
  return {uint4{word[0], word[1], word[2], word[3]}};
}

template <typename T, int V>
__device__ Pack<T, V> load(const T* from) {
  return *reinterpret_cast<const Pack<T, V>*>(from);
}

template <typename T, int V>
__device__ void store(const float (&values)[V], T* to) {
  *reinterpret_cast<Pack<T, V>*>(to) = Pack<T, V>::of(values);
}

/// Of numbers a channel.
template <int V>
__device__ void load_channels(const float* from, float (&to)[V]) {
#pragma unroll
  for (int i = 0; i < V; ++i) to[i] = from[i];
}

struct Pair {
  double x, y;
};

/// Where a thread of the summing kernels stands.
template <int V>
struct Place {
  static constexpr int kWidth = kPacks * V;  ///< channels of a block
  Index channel, first, last;                ///< its first channel; the block's rows
  unsigned row, warp, lane;
  __device__ Place(Index rows, Index rows_per_block)
      : channel((Index(blockIdx.y) * kPacks + threadIdx.x % kPacks) * V),
        first(Index(blockIdx.x) * rows_per_block),
        last(min(rows, first + rows_per_block)),
        row(threadIdx.x / kPacks),
        warp(threadIdx.x / 32),
        lane(threadIdx.x % 32) {}
  /// Rows of the block that a warp takes.
  __device__ float rows_of(int w) const {
    const int all = int(last - first), rest = all % kSumRows - w * kWarpRows;
    return float(all / kSumRows * kWarpRows + min(max(rest, 0), kWarpRows));
  }
};

/// Adds up a warp's rows; the first 8 lanes have the sums.
template <int V>
__device__ void add_rows(float (&x)[V]) {
#pragma unroll
  for (int i = 0; i < V; ++i) {
    x[i] += __shfl_xor_sync(0xffffffffu, x[i], 8);
    x[i] += __shfl_xor_sync(0xffffffffu, x[i], 16);
  }
}

/// Threads below kWidth bring the block's pair for a channel. The last block of these channels to come here adds up
/// term(block, its pair, the first block's pair), in an order that does not depend on which block that is; its threads
/// below kWidth return true.
template <int kWidth, typename Term>
__device__ bool last_adds(float2 own, float2* partials, unsigned* tickets, const Term& term,
                          Pair& total) {
  constexpr int kParts = kSumThreads / kWidth;
  __shared__ Pair parts[kSumThreads];
  __shared__ bool is_last;
  const int t = int(threadIdx.x);
  float2* const mine = partials + Index(blockIdx.y) * gridDim.x * kWidth;
  if (t < kWidth) {
    mine[Index(blockIdx.x) * kWidth + t] = own;
    __threadfence();
  }
  __syncthreads();
  if (t == 0) is_last = atomicAdd(tickets + blockIdx.y, 1u) == gridDim.x - 1;
  __syncthreads();
  if (!is_last) return false;
  __threadfence();
  const int column = t % kWidth;
  const float2 origin = __ldcg(mine + column);
  total = {0, 0};
#pragma unroll 8
  for (unsigned block = unsigned(t / kWidth); block < gridDim.x; block += kParts) {
    const Pair next = term(block, __ldcg(mine + Index(block) * kWidth + column), origin);
    total.x += next.x;
    total.y += next.y;
  }
  parts[t] = total;
  __syncthreads();
  if (t == 0) tickets[blockIdx.y] = 0;
  if (t >= kWidth) return false;
  for (int part = 1; part < kParts; ++part) {
    total.x += parts[part * kWidth + t].x;
    total.y += parts[part * kWidth + t].y;
  }
  return true;
}

/// Not fmax, which would lose a NaN.
template <typename Number>
__device__ Number not_below_zero(Number x) {
  return x < Number(0) ? Number(0) : x;
}

/// Mean and variance. Each warp sums about its own first row: a difference of squares then loses no more digits than
/// the rows of a warp explain, however far the mean is from zero. Warps and blocks are joined by their means and squares
/// about them, blocks in float64.
template <typename T, int V>
__global__ void __launch_bounds__(kSumThreads, 2)
    statistics_kernel(NormForward task, Index rows_per_block) {
  constexpr int kWidth = Place<V>::kWidth, kAhead = 4;
  __shared__ float means[kWarps][kWidth], squares[kWarps][kWidth];
  const Place<V> at(task.rows, rows_per_block);
  const Index channels = task.channels;
  float shift[V] = {}, sum[V] = {}, square[V] = {};
  if (at.channel < channels) {
    const T* const input = static_cast<const T*>(task.input) + at.channel;
    const Index warps_first = at.first + Index(at.warp) * kWarpRows;
    if (warps_first < at.last) load<T, V>(input + warps_first * channels).unpack(shift);
    for (Index row = at.first + at.row; row < at.last; row += kAhead * kSumRows) {
      Pack<T, V> values[kAhead];
#pragma unroll
      for (int k = 0; k < kAhead; ++k)
        if (row + k * kSumRows < at.last)
          values[k] = load<T, V>(input + (row + k * kSumRows) * channels);
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        if (row + k * kSumRows >= at.last) continue;
        float x[V];
        values[k].unpack(x);
#pragma unroll
        for (int i = 0; i < V; ++i) {
          x[i] -= shift[i];
          sum[i] += x[i];
          square[i] = fmaf(x[i], x[i], square[i]);
        }
      }
    }
  }
  add_rows(sum);
  add_rows(square);
  if (at.lane < kPacks) {
    const float rows = at.rows_of(int(at.warp)), share = rows > 0 ? 1 / rows : 0;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const float mean = sum[i] * share;
      means[at.warp][at.lane * V + i] = shift[i] + mean;
      squares[at.warp][at.lane * V + i] = not_below_zero(square[i] - sum[i] * mean);
    }
  }
  __syncthreads();
  float2 own{0, 0};
  if (threadIdx.x < kWidth) {
    const float origin = means[0][threadIdx.x];  // the first warp has rows in every block
    float s = 0, q = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const float rows = at.rows_of(w), d = rows > 0 ? means[w][threadIdx.x] - origin : 0;
      s += rows * d;
      q += squares[w][threadIdx.x] + rows * d * d;
    }
    const float mean = s / float(at.last - at.first);
    own = {origin + mean, not_below_zero(q - s * mean)};
  }
  const auto about_origin = [&](unsigned block, float2 part, float2 origin) {
    const double d = double(part.x) - double(origin.x);
    const double n = double(min(rows_per_block, task.rows - Index(block) * rows_per_block));
    return Pair{n * d, double(part.y) + n * d * d};
  };
  Pair total;
  if (!last_adds<kWidth>(own, reinterpret_cast<float2*>(task.scratch), task.tickets, about_origin,
                         total))
    return;
  const Index c = Index(blockIdx.y) * kWidth + threadIdx.x;
  if (c >= channels) return;
  const double n = double(task.rows), offset = total.x / n;
  // Written by another block, perhaps: as last_adds reads it.
  const double origin = double(__ldcg(reinterpret_cast<float2*>(task.scratch) +
                                      Index(blockIdx.y) * gridDim.x * kWidth + threadIdx.x)
                                   .x);
  const double mean = origin + offset;
  const double deviations = not_below_zero(total.y - total.x * offset);
  const double inverse = 1 / sqrt(deviations / n + task.eps);
  task.statistics[c] = float(mean);
  task.statistics[channels + c] = float(inverse);
  task.statistics[2 * channels + c] = float(double(task.weight[c]) * inverse);
  const double keep = 1 - task.momentum;
  task.running_mean[c] = float(keep * double(task.running_mean[c]) + task.momentum * mean);
  task.running_variance[c] =
      float(keep * double(task.running_variance[c]) + task.momentum * (deviations / (n - 1)));
  if (c == 0) *task.batches += 1;
}

/// How backward knows where ReLU passes a gradient. Without a residual the output is made again from the input, to the
/// same bits: that saves reading it.
enum class Mask { none, input, output };

/// What makes an output of an input.
template <int V>
struct Line {
  float mean[V], scale[V], bias[V];
  __device__ Line(const float* statistics, const float* biases, Index channels, Index channel) {
    load_channels(statistics + channel, mean);
    load_channels(statistics + 2 * channels + channel, scale);
    load_channels(biases + channel, bias);
  }
  /// Not scale x + offset: where all values are the same this is the bias to the last bit.
  __device__ float operator()(float x, int i) const {
    return __fmaf_rn(__fsub_rn(x, mean[i]), scale[i], bias[i]);
  }
};

/// The gradient that torch's ReLU passes: where the output is NaN as well.
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
  pass(Pack<T, V>::of(y), gradient);  // as rounded in forward
}

template <typename T, int V, bool kRelu, bool kResidual>
__global__ void __launch_bounds__(kMapThreads) normalise_kernel(NormForward task) {
  constexpr int kAhead = 4;
  const Index channels = task.channels, rows = task.rows;
  const Index channel = (Index(blockIdx.y) * kPacks + threadIdx.x % kPacks) * V;
  if (channel >= channels) return;
  const T* const input = static_cast<const T*>(task.input) + channel;
  const T* const residual = static_cast<const T*>(task.residual) + (kResidual ? channel : 0);
  T* const output = static_cast<T*>(task.output) + channel;
  const Index first = Index(blockIdx.x) * kAhead * kMapRows + threadIdx.x / kPacks;
  Pack<T, V> x[kAhead], r[kAhead];
#pragma unroll
  for (int k = 0; k < kAhead; ++k) {
    const Index row = first + k * kMapRows;
    if (row >= rows) continue;
    x[k] = load<T, V>(input + row * channels);
    if constexpr (kResidual) r[k] = load<T, V>(residual + row * channels);
  }
  const Line<V> line(task.statistics, task.bias, channels, channel);
#pragma unroll
  for (int k = 0; k < kAhead; ++k) {
    const Index row = first + k * kMapRows;
    if (row >= rows) continue;
    float y[V], added[V];
    x[k].unpack(y);
    if constexpr (kResidual) r[k].unpack(added);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      y[i] = line(y[i], i);
      if constexpr (kResidual) y[i] += added[i];
      if constexpr (kRelu) y[i] = not_below_zero(y[i]);
    }
    store<T>(y, output + row * channels);
  }
}

/// Sums of g and of g (x - mean), with g = dL_doutput where ReLU passes it; g itself is dL_dresidual. The last block makes of them dL_dweight,
/// dL_dbias, and b, c of dL_dinput = (weight / deviation) g + b x + c, which it leaves behind the partial sums.
template <typename T, int V, Mask kMask, bool kResidual>
__global__ void __launch_bounds__(kSumThreads, 2)
    gradient_sums_kernel(NormBackward task, Index rows_per_block, float* coefficients) {
  constexpr int kWidth = Place<V>::kWidth, kAhead = 2;
  __shared__ float shared_sums[kWarps][kWidth], shared_tilts[kWarps][kWidth];
  const Place<V> at(task.rows, rows_per_block);
  const Index channels = task.channels;
  float sum[V] = {}, tilt[V] = {};
  if (at.channel < channels) {
    const T* const gradient = static_cast<const T*>(task.dL_doutput) + at.channel;
    const T* const input = static_cast<const T*>(task.input) + at.channel;
    const T* output = nullptr;
    if constexpr (kMask == Mask::output) output = static_cast<const T*>(task.output) + at.channel;
    T* dL_dresidual = nullptr;
    if constexpr (kResidual) dL_dresidual = static_cast<T*>(task.dL_dresidual) + at.channel;
    const Line<V> line(task.statistics, task.bias, channels,
                       at.channel);  // what is not used is not read
    for (Index row = at.first + at.row; row < at.last; row += kAhead * kSumRows) {
      Pack<T, V> g[kAhead], x[kAhead], y[kAhead];
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        const Index offset = (row + k * kSumRows) * channels;
        if (row + k * kSumRows >= at.last) continue;
        g[k] = load<T, V>(gradient + offset);
        x[k] = load<T, V>(input + offset);
        if constexpr (kMask == Mask::output) y[k] = load<T, V>(output + offset);
      }
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        if (row + k * kSumRows >= at.last) continue;
        float passed[V], values[V];
        g[k].unpack(passed);
        x[k].unpack(values);
        if constexpr (kMask == Mask::output) pass(y[k], passed);
        if constexpr (kMask == Mask::input) pass<T>(line, values, passed);
        if constexpr (kResidual) store<T>(passed, dL_dresidual + (row + k * kSumRows) * channels);
#pragma unroll
        for (int i = 0; i < V; ++i) {
          sum[i] += passed[i];
          tilt[i] = fmaf(passed[i], values[i] - line.mean[i], tilt[i]);
        }
      }
    }
  }
  add_rows(sum);
  add_rows(tilt);
  if (at.lane < kPacks) {
#pragma unroll
    for (int i = 0; i < V; ++i) {
      shared_sums[at.warp][at.lane * V + i] = sum[i];
      shared_tilts[at.warp][at.lane * V + i] = tilt[i];
    }
  }
  __syncthreads();
  float2 own{0, 0};
  if (threadIdx.x < kWidth) {
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      own.x += shared_sums[w][threadIdx.x];
      own.y += shared_tilts[w][threadIdx.x];
    }
  }
  const auto plain = [](unsigned, float2 part, float2) { return Pair{part.x, part.y}; };
  Pair total;
  if (!last_adds<kWidth>(own, reinterpret_cast<float2*>(task.scratch), task.tickets, plain, total))
    return;
  const Index c = Index(blockIdx.y) * kWidth + threadIdx.x;
  if (c >= channels) return;
  const double n = double(task.rows), mean = double(task.statistics[c]),
               inverse = double(task.statistics[channels + c]),
               scale = double(task.statistics[2 * channels + c]);
  const double dL_dweight = total.y * inverse;
  task.dL_dweight[c] = float(dL_dweight);
  task.dL_dbias[c] = float(total.x);
  const double slope = -scale * inverse * dL_dweight / n;
  coefficients[c] = float(slope);
  coefficients[channels + c] = float(-scale * total.x / n - slope * mean);
}

template <typename T, int V, Mask kMask>
__global__ void __launch_bounds__(kMapThreads)
    input_gradient_kernel(NormBackward task, const float* coefficients) {
  constexpr int kAhead = 2;
  const Index channels = task.channels, rows = task.rows;
  const Index channel = (Index(blockIdx.y) * kPacks + threadIdx.x % kPacks) * V;
  if (channel >= channels) return;
  const T* const gradient = static_cast<const T*>(task.dL_doutput) + channel;
  const T* const input = static_cast<const T*>(task.input) + channel;
  const T* output = nullptr;
  if constexpr (kMask == Mask::output) output = static_cast<const T*>(task.output) + channel;
  T* const dL_dinput = static_cast<T*>(task.dL_dinput) + channel;
  const Index first = Index(blockIdx.x) * kAhead * kMapRows + threadIdx.x / kPacks;
  Pack<T, V> g[kAhead], x[kAhead], y[kAhead];
#pragma unroll
  for (int k = 0; k < kAhead; ++k) {
    const Index row = first + k * kMapRows;
    if (row >= rows) continue;
    g[k] = load<T, V>(gradient + row * channels);
    x[k] = load<T, V>(input + row * channels);
    if constexpr (kMask == Mask::output) y[k] = load<T, V>(output + row * channels);
  }
  const Line<V> line(task.statistics, task.bias, channels, channel);
  float slope[V], offset[V];
  load_channels(coefficients + channel, slope);
  load_channels(coefficients + channels + channel, offset);
#pragma unroll
  for (int k = 0; k < kAhead; ++k) {
    const Index row = first + k * kMapRows;
    if (row >= rows) continue;
    float passed[V], values[V];
    g[k].unpack(passed);
    x[k].unpack(values);
    if constexpr (kMask == Mask::output) pass(y[k], passed);
    if constexpr (kMask == Mask::input) pass<T>(line, values, passed);
#pragma unroll
    for (int i = 0; i < V; ++i)
      values[i] = fmaf(line.scale[i], passed[i], fmaf(slope[i], values[i], offset[i]));
    store<T>(values, dL_dinput + row * channels);
  }
}

Index parts_of(Index whole, Index part) { return (whole + part - 1) / part; }

struct SumGrid {
  Index rows_per_block;
  dim3 blocks;
};
template <int V>
SumGrid sum_grid(const NormTask& task) {
  const Index tiles = parts_of(task.channels, kPacks * V);
  const Index wanted = std::max<Index>(1, kSumBlocks / tiles);
  const Index rows = parts_of(parts_of(task.rows, wanted), kSumRows) * kSumRows;
  return {rows, dim3(unsigned(parts_of(task.rows, rows)), unsigned(tiles))};
}
template <int V>
dim3 map_grid(const NormTask& task, int ahead) {
  return dim3(unsigned(parts_of(task.rows, Index(ahead) * kMapRows)),
              unsigned(parts_of(task.channels, kPacks * V)));
}

template <typename T, int V>
cudaError_t forward(const NormForward& task, cudaStream_t stream) {
  const auto [rows_per_block, blocks] = sum_grid<V>(task);
  statistics_kernel<T, V><<<blocks, kSumThreads, 0, stream>>>(task, rows_per_block);
  const dim3 map = map_grid<V>(task, 4);
  if (task.relu && task.residual)
    normalise_kernel<T, V, true, true><<<map, kMapThreads, 0, stream>>>(task);
  else if (task.relu)
    normalise_kernel<T, V, true, false><<<map, kMapThreads, 0, stream>>>(task);
  else if (task.residual)
    normalise_kernel<T, V, false, true><<<map, kMapThreads, 0, stream>>>(task);
  else
    normalise_kernel<T, V, false, false><<<map, kMapThreads, 0, stream>>>(task);
  return cudaGetLastError();
}

template <typename T, int V, Mask kMask, bool kResidual>
cudaError_t backward_with(const NormBackward& task, cudaStream_t stream) {
  const auto [rows_per_block, blocks] = sum_grid<V>(task);
  float* const coefficients = task.scratch + norm_scratch(task.channels) - 2 * task.channels;
  gradient_sums_kernel<T, V, kMask, kResidual>
      <<<blocks, kSumThreads, 0, stream>>>(task, rows_per_block, coefficients);
  NormBackward rest = task;
  if (kResidual) rest.dL_doutput = task.dL_dresidual;  // what ReLU passed
  input_gradient_kernel<T, V, kResidual ? Mask::none : kMask>
      <<<map_grid<V>(task, 2), kMapThreads, 0, stream>>>(rest, coefficients);
  return cudaGetLastError();
}

template <typename T, int V>
cudaError_t backward(const NormBackward& task, cudaStream_t stream) {
  if (!task.relu) return backward_with<T, V, Mask::none, false>(task, stream);
  if (!task.output) return backward_with<T, V, Mask::input, false>(task, stream);
  return task.dL_dresidual ? backward_with<T, V, Mask::output, true>(task, stream)
                           : backward_with<T, V, Mask::output, false>(task, stream);
}

/// Whether 16 bytes at a time can be read everywhere.
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
  return packs<T>(task.channels,
                  {task.dL_doutput, task.output, task.input, task.dL_dinput, task.dL_dresidual})
             ? backward<T, 16 / sizeof(T)>(task, stream)
             : backward<T, 1>(task, stream);
}

}  // namespace

std::size_t norm_scratch(std::int64_t channels) {
  // A pair for each channel of each block, at most; and two coefficients a channel.
  const std::int64_t widest = kPacks * kMostPack;
  return std::size_t(2 * std::max(kSumBlocks * widest, channels + widest) + 2 * channels);
}

cudaError_t norm_forward(const NormForward& task, cudaStream_t stream) {
  switch (task.element) {
    case Element::float32:
      return forward_of<float>(task, stream);
    case Element::float16:
      return forward_of<__half>(task, stream);
    case Element::bfloat16:
      return forward_of<__nv_bfloat16>(task, stream);
  }
  return cudaErrorInvalidValue;
}

cudaError_t norm_backward(const NormBackward& task, cudaStream_t stream) {
  switch (task.element) {
    case Element::float32:
      return backward_of<float>(task, stream);
    case Element::float16:
      return backward_of<__half>(task, stream);
    case Element::bfloat16:
      return backward_of<__nv_bfloat16>(task, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace keel::lab::cuda
