#include <fmt/format.h>
#include <torch/autograd.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/types.h>

#include <chrono>
#include <thread>

#include "add.h"
#include "cases.h"
#include "keel/torch/keel.h"

namespace keel::bench {
namespace {

/// Channels that are correlated, as a convolution's are. Made once: the threads of the BLAS spin on
/// for some 30 ms after a product, on the cores of whatever is timed next.
torch::Tensor activations(bool channels_last) {
  static const torch::Tensor x = [] {
    torch::manual_seed(7);
    const torch::Tensor mix = torch::randn({kChannels, kChannels}) / 8;
    return torch::einsum("cd,ndhw->nchw", {mix, torch::randn({kBatch, kChannels, kSide, kSide})})
        .contiguous();
  }();
  return x.clone(channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous);
}

/// ZCA whitening as one writes it without keel: the textbook gradient through torch's own operators.
torch::Tensor zca_of_torch_operators(const torch::Tensor& x, std::int64_t d,
                                     const torch::Tensor& weight, const torch::Tensor& bias) {
  const std::int64_t n = x.size(0), c = x.size(1);
  const torch::Tensor rows = x.transpose(0, 1).reshape({c / d, d, -1});
  const torch::Tensor centred = rows - rows.mean(2, true);
  const torch::Tensor covariance =
      centred.matmul(centred.transpose(1, 2)) / double(rows.size(2)) + 1e-4 * torch::eye(d);
  const auto [values, vectors] = torch::linalg_eigh(covariance, "L");
  const torch::Tensor s = (vectors * values.rsqrt().unsqueeze(1)).matmul(vectors.transpose(1, 2));
  const torch::Tensor white =
      s.matmul(centred).reshape({c, n, x.size(2), x.size(3)}).transpose(0, 1);
  return white * weight.reshape({1, -1, 1, 1}) + bias.reshape({1, -1, 1, 1});
}

template <typename Layer>
void add_layer(const std::string& name, bool channels_last, Layer layer) {
  add(name, [=](benchmark::State& state) mutable {
    const torch::Tensor x = activations(channels_last).requires_grad_();
    const torch::Tensor dL_dy = activations(channels_last);
    layer(x);
    // The threads of a peer before this one may still be spinning.
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    for (auto _ : state) {
      const torch::Tensor y = layer(x);
      benchmark::DoNotOptimize(torch::autograd::grad({y}, {x}, {dL_dy}));
    }
  });
}

void register_layer(const std::string& kind, std::int64_t d, bool channels_last) {
  const std::string name = fmt::format("{} layer{}, forward+backward/n={}/batch={}/", kind,
                                       channels_last ? " channels_last" : "", d, kBatch);
  torch::nn::BatchNorm2d batch_norm(kChannels);
  add_layer(name + "BatchNorm2d", channels_last,
            [=](const torch::Tensor& x) mutable { return batch_norm(x); });
  const nn::WhiteningOptions options{.num_features = kChannels, .group_size = d};
  if (kind == "pca_denoising") {
    nn::PcaDenoising own(options);
    add_layer(name + "keel", channels_last, [=](const torch::Tensor& x) mutable { return own(x); });
    return;
  }
  nn::ZcaWhitening own(options);
  add_layer(name + "keel", channels_last, [=](const torch::Tensor& x) mutable { return own(x); });
  const torch::Tensor weight = torch::ones(kChannels), bias = torch::zeros(kChannels);
  add_layer(name + "torch_operators", channels_last,
            [=](const torch::Tensor& x) { return zca_of_torch_operators(x, d, weight, bias); });
}

}  // namespace

void register_layers() {
  for (const bool channels_last : {false, true}) {
    for (const std::int64_t d : {64, 16, 4}) register_layer("zca", d, channels_last);
    register_layer("pca_denoising", 64, channels_last);
  }
}

}  // namespace keel::bench
