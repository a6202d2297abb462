#pragma once

// Layers by name, and the same computation in plain differentiable torch operators.

#include "support.h"

namespace keel::test {

/// Correlated channels with different means. Every eigenvalue of each group's covariance is distinct.
inline Tensor activations(at::IntArrayRef shape, std::uint64_t seed = 1,
                          at::ScalarType type = at::kDouble) {
  const std::int64_t channels = shape[1];
  const Tensor mix =
      torch::eye(channels, at::kDouble) + 0.3 * random({channels, channels}, seed + 1);
  const Tensor scale = torch::linspace(0.5, 2, channels, at::kDouble);
  const Tensor plain = random(shape, seed).movedim(1, -1).matmul(mix) * scale + scale;
  return plain.movedim(-1, 1).contiguous().to(type);
}

/// (G, d, m): the samples of each group as columns.
inline Tensor as_columns(const Tensor& x, std::int64_t groups) {
  return x.transpose(0, 1).reshape({groups, x.size(1) / groups, -1});
}

inline Tensor like_activations(const Tensor& columns, const Tensor& like) {
  auto shape = like.transpose(0, 1).sizes().vec();
  return columns.reshape(shape).transpose(0, 1);
}

inline Tensor covariance_of(const Tensor& x, std::int64_t groups = 1) {
  const Tensor columns = as_columns(x.to(at::kDouble), groups);
  const Tensor centred = columns - columns.mean(-1, /*keepdim=*/true);
  return centred.matmul(centred.mT()) / double(columns.size(-1));
}

using Decompose = std::function<std::pair<Tensor, Tensor>(const Tensor&)>;

/// torch::linalg_eigh, descending.
inline std::pair<Tensor, Tensor> torch_eigh(const Tensor& m) {
  const auto [values, vectors] = torch::linalg_eigh(m, "L");
  return {values.flip(-1), vectors.flip(-1)};
}

/// The whole layer with `kept` eigenvectors per group, each step a torch operator.
inline Tensor plain_layer(const LayerMap& map, const Tensor& x, const Tensor& weight,
                          const Tensor& bias, std::int64_t groups, std::int64_t kept,
                          const Decompose& decompose = torch_eigh) {
  const Tensor columns = as_columns(x, groups);
  const Tensor centred = columns - columns.mean(-1, /*keepdim=*/true);
  const Tensor covariance = centred.matmul(centred.mT()) / double(columns.size(-1));
  const double eps = std::visit([](const auto& m) { return m.eps; }, map);
  Tensor scale = torch::ones_like(covariance.diagonal(0, -2, -1));
  if (std::holds_alternative<keel::PcaDenoising>(map))
    scale = (covariance.diagonal(0, -2, -1) + eps).rsqrt();
  const Tensor m = scale.unsqueeze(-1) * covariance * scale.unsqueeze(-2) +
                   eps * torch::eye(covariance.size(-1), covariance.options());
  const auto [values, vectors] = decompose(m);
  const Tensor v = vectors.narrow(-1, 0, kept), l = values.narrow(-1, 0, kept);
  Tensor s;
  if (std::holds_alternative<Zca>(map))
    s = (v * l.rsqrt().unsqueeze(-2)).matmul(v.mT());
  else if (std::holds_alternative<keel::PcaDenoising>(map))
    s = v.matmul(v.mT()) * scale.unsqueeze(-2);
  else
    s = torch::constant_pad_nd((v * l.rsqrt().unsqueeze(-2)).mT(),
                               {0, 0, 0, vectors.size(-1) - kept});
  Tensor y = s.matmul(centred);
  if (weight.defined()) y = y * weight.reshape({groups, -1, 1});
  if (bias.defined()) y = y + bias.reshape({groups, -1, 1});
  return like_activations(y, x);
}

/// A common interface to the three layers.
struct Layer {
  std::string name;
  std::shared_ptr<nn::WhiteningImpl> module;
  LayerMap map;

  nn::WhiteningImpl* operator->() const { return module.get(); }
  Tensor operator()(const Tensor& x) const { return module->forward(x); }
};

inline std::vector<Layer> layers(const nn::WhiteningOptions& options) {
  const auto zca = std::make_shared<nn::ZcaWhiteningImpl>(options);
  const auto denoising = std::make_shared<nn::PcaDenoisingImpl>(options);
  const auto pca = std::make_shared<nn::PcaWhiteningImpl>(options);
  return {{"zca", zca, Zca{options.eps, *zca->options.rank}},
          {"denoising", denoising, keel::PcaDenoising{options.eps, *denoising->options.rank}},
          {"pca", pca, keel::PcaWhitening{options.eps, *pca->options.rank}}};
}

/// Sets the affine parameters to random values.
inline void scramble(const Layer& layer) {
  const torch::NoGradGuard no_grad;
  layer->weight.copy_(1 + 0.5 * random(layer->weight.sizes(), 21));
  layer->bias.copy_(random(layer->bias.sizes(), 22));
}

}  // namespace keel::test
