// Counts what a layer allocates and keeps, compared with BatchNorm2d.

#include <gtest/gtest.h>
#include <malloc.h>
#include <torch/nn/modules/batchnorm.h>

#include <algorithm>
#include <mutex>

#include "layers_support.h"

namespace {

std::size_t alive() {
  const auto info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

std::mutex guard;
bool counting = false;
std::size_t peak = 0, large = 0, threshold = 0;

void count(std::size_t bytes) {
  const std::lock_guard<std::mutex> lock(guard);
  if (!counting) return;
  peak = std::max(peak, alive() + bytes);
  if (bytes >= threshold) ++large;
}

}  // namespace

// LibTorch's tensors use the first function, the core's scratch the second.
extern "C" int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) noexcept {
  count(bytes);
  *memory = memalign(alignment, bytes);
  return *memory == nullptr ? ENOMEM : 0;
}
extern "C" void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept {
  count(bytes);
  return memalign(alignment, bytes);
}

namespace keel::test {
namespace {

struct Pass {
  std::size_t large = 0;  ///< allocations of the activations' size
  std::size_t peak = 0;   ///< bytes at most alive, beyond those before
  std::size_t kept = 0;   ///< bytes still alive at the end
};

template <typename Call>
Pass measured(std::size_t activation, Call&& call) {
  const std::size_t before = alive();
  {
    const std::lock_guard<std::mutex> lock(guard);
    threshold = activation / 2;
    peak = before;
    large = 0;
    counting = true;
  }
  call();
  const std::lock_guard<std::mutex> lock(guard);
  counting = false;
  return {large, peak - before, alive() - before};
}

struct Cost {
  Pass forward, backward;
};

Cost cost(const std::function<Tensor(const Tensor&)>& layer, const Tensor& input) {
  const Tensor x = input.detach().requires_grad_(true);
  const Tensor dL_doutput = torch::empty_like(input).fill_(1);
  torch::autograd::grad({layer(x)}, {x}, {dL_doutput});  // one-time work happens here
  Tensor output, slope;
  Cost c;
  c.forward = measured(input.nbytes(), [&] { output = layer(x); });
  c.backward = measured(input.nbytes(),
                        [&] { slope = torch::autograd::grad({output}, {x}, {dL_doutput})[0]; });
  return c;
}

TEST(LayerMemory, IsBatchNormsAndAFewSmallMatrices) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer has an allocator of its own";
#endif
  at::set_num_threads(2);
  const std::int64_t channels = 32;
  for (const auto type : {at::kFloat, at::kBFloat16})
    for (const bool last : {false, true}) {
      Tensor x = activations({32, channels, 32, 32}, 1, type);
      if (last) x = x.contiguous(at::MemoryFormat::ChannelsLast);
      torch::nn::BatchNorm2d norm(channels);
      norm->to(type);
      const Cost peer = cost([&](const Tensor& y) { return norm(y); }, x);
      for (const Layer& layer : layers({.num_features = channels})) {
        const Cost ours = cost(layer, x);
        EXPECT_EQ(ours.forward.large, 1) << layer.name;   // the output
        EXPECT_EQ(ours.backward.large, 1) << layer.name;  // the gradient
        EXPECT_LE(ours.forward.large, peer.forward.large);
        EXPECT_LE(ours.backward.large, peer.backward.large);
        // Kept: the output, a few C x d matrices in float32 and autograd's own records.
        const std::size_t matrix = channels * channels * sizeof(float);
        EXPECT_LT(ours.forward.kept, peer.forward.kept + 8 * matrix + 8192) << layer.name;
        EXPECT_GE(ours.forward.kept, x.nbytes()) << layer.name;
        // Temporary: at most 32 sets of C x (d + 1) sums in float64, and a tile per thread.
        const std::size_t temporary = 32 * 2 * (matrix + 4 * channels) + 2 * 256 * 1024;
        EXPECT_LT(ours.forward.peak, x.nbytes() + temporary) << layer.name;
        EXPECT_LT(ours.backward.peak, x.nbytes() + temporary) << layer.name;
      }
    }
}

TEST(LayerMemory, WithoutAGraphNothingIsKept) {
  const torch::NoGradGuard no_grad;
  nn::ZcaWhitening layer({.num_features = 32});
  const Tensor x = activations({16, 32, 32, 32}, 1, at::kFloat);
  layer(x);
  const std::size_t before = alive();
  { const Tensor y = layer(x); }
  EXPECT_LT(alive(), before + 65536);
}

}  // namespace
}  // namespace keel::test
