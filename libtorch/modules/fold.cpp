// Folds a layer in evaluation, A (x - mean) + bias, into the convolution or linear layer before it.

#include <typeinfo>

#include "check.h"
#include "keel/torch/nn/whitening.h"

namespace keel::nn {

using torch::Tensor;

void WhiteningImpl::require_evaluation(const char* what) const {
  TORCH_CHECK_VALUE(options.activation == Activation::none, name(), "::", what,
                    ": expected a layer without an activation, got relu; set options.activation to "
                    "none and put ReLU behind the layer that comes out");
  TORCH_CHECK(!is_training() && running_mean.defined(), name(), "::", what,
              ": expected a layer in eval mode with running statistics, got one ",
              is_training() ? "in training mode" : "without running statistics");
}

/// `before` must be exactly a `Plain`: a subclass or extra state could change its output.
template <typename Plain>
void require_plain(const std::string& name, const Plain& before, const char* kind) {
  const auto refuse = [&](const std::string& got) {
    TORCH_CHECK_VALUE(false, name, "::fold_into: expected a plain ", kind, ", got one with ", got);
  };
  if (typeid(before) != typeid(Plain)) refuse("a class of its own, " + before.name());
  for (const auto& item : before.named_parameters(/*recurse=*/false))
    if (item.key() != "weight" && item.key() != "bias") refuse("parameter " + item.key());
  for (const auto& item : before.named_buffers(/*recurse=*/false)) refuse("buffer " + item.key());
  for (const auto& item : before.named_children()) refuse("submodule " + item.key());
  if (!before.weight.defined()) refuse("no weight");
  TORCH_CHECK_VALUE(before.weight.is_floating_point(), name,
                    "::fold_into: expected real floating-point parameters, got ",
                    ops::name_of(before.weight.scalar_type()));
}

/// Fills `after`, a copy of the layer before that has a bias. Computes in float64.
template <typename Layer>
Layer WhiteningImpl::folded(Layer after, const Tensor& before_weight,
                            const Tensor& before_bias) const {
  const torch::NoGradGuard no_grad;
  const std::int64_t groups = *options.groups;
  const Tensor matrix = evaluation_matrix(torch::kDouble);
  Tensor shift = -running_mean.to(torch::kDouble);
  if (before_bias.defined()) shift = shift + before_bias.to(torch::kDouble);
  Tensor new_bias = matrix.matmul(shift.reshape({groups, -1, 1})).reshape({-1});
  if (bias.defined()) new_bias = new_bias + bias.to(torch::kDouble);
  const Tensor rows = before_weight.to(torch::kDouble).reshape({groups, *options.group_size, -1});
  const Tensor new_weight = matrix.matmul(rows).reshape(before_weight.sizes());
  after->to(before_weight.device(), before_weight.scalar_type());
  after->weight.copy_(new_weight);
  after->bias.copy_(new_bias);
  return after;
}

template <std::size_t dimensions, typename Convolution>
Convolution WhiteningImpl::folded_convolution(const Convolution& before) const {
  require_evaluation("fold_into");
  require_plain(name(), *before, "convolution");
  const auto& like = before->options;
  const std::int64_t out = like.out_channels(), cuts = like.groups(), d = *options.group_size;
  TORCH_CHECK_VALUE(out == options.num_features, name(), "::fold_into: expected a convolution to ",
                    options.num_features, " channels, got one to ", out);
  TORCH_CHECK_VALUE(out / cuts % d == 0, name(), "::fold_into: groups of ", d,
                    " channels do not lie inside the convolution's ", cuts, " groups of ",
                    out / cuts);
  Convolution after(torch::nn::ConvOptions<dimensions>(like.in_channels(), out, like.kernel_size())
                        .stride(like.stride())
                        .padding(like.padding())
                        .dilation(like.dilation())
                        .groups(cuts)
                        .bias(true)
                        .padding_mode(like.padding_mode()));
  after->train(before->is_training());
  return folded(after, before->weight, before->bias);
}

torch::nn::Conv1d WhiteningImpl::fold_into(const torch::nn::Conv1d& before) const {
  return folded_convolution<1>(before);
}
torch::nn::Conv2d WhiteningImpl::fold_into(const torch::nn::Conv2d& before) const {
  return folded_convolution<2>(before);
}
torch::nn::Conv3d WhiteningImpl::fold_into(const torch::nn::Conv3d& before) const {
  return folded_convolution<3>(before);
}

torch::nn::Linear WhiteningImpl::fold_into(const torch::nn::Linear& before) const {
  require_evaluation("fold_into");
  require_plain(name(), *before, "linear layer");
  auto like = before->options;
  TORCH_CHECK_VALUE(like.out_features() == options.num_features, name(),
                    "::fold_into: expected a linear layer to ", options.num_features,
                    " channels, got one to ", like.out_features());
  torch::nn::Linear after(like.bias(true));
  after->train(before->is_training());
  return folded(after, before->weight, before->bias);
}

torch::nn::Conv2d WhiteningImpl::as_conv1x1() const {
  require_evaluation("as_conv1x1");
  const std::int64_t channels = options.num_features, d = *options.group_size;
  torch::nn::Conv2d plain(
      torch::nn::Conv2dOptions(channels, channels, 1).groups(*options.groups).bias(true));
  plain->eval();
  const Tensor identity = torch::eye(d, running_matrix.options()).repeat({*options.groups, 1});
  return folded(plain, identity.reshape({channels, d, 1, 1}), Tensor());
}

}  // namespace keel::nn
