#pragma once

#include <torch/torch.h>

namespace keel::bench {

/// The channels of the activations that layers are timed on, (128, 64, 32, 32).
inline constexpr std::int64_t kLayerChannels = 64;
inline const at::Device kLayerDevice(at::kCUDA, 0);

/// Channels that are correlated, as a convolution's are.
inline torch::Tensor layer_activations(at::ScalarType type, bool channels_last) {
  torch::manual_seed(7);
  const torch::Tensor mix = torch::randn({kLayerChannels, kLayerChannels}, kLayerDevice) / 8;
  const torch::Tensor drawn = torch::randn({128, kLayerChannels, 32 * 32}, kLayerDevice);
  const torch::Tensor x = mix.matmul(drawn).reshape({128, kLayerChannels, 32, 32}).to(type);
  return x.contiguous(channels_last ? at::MemoryFormat::ChannelsLast
                                    : at::MemoryFormat::Contiguous);
}

}  // namespace keel::bench
