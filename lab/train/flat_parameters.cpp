#include "lab/train/flat_parameters.h"

#include <algorithm>

#include "keel/error.h"
#include "lab/train/fused_step.h"

namespace keel::lab {

using torch::Tensor;

FlatParameters::FlatParameters(torch::nn::Module& module, bool channels_last)
    : channels_last_(channels_last), offsets_{0} {
  for (const auto& item : module.named_parameters()) {
    names_.push_back(item.key());
    parameters_.push_back(item.value());
    offsets_.push_back(offsets_.back() + item.value().numel());
  }
  require(!parameters_.empty(), "expected a module with parameters");
  const auto options = parameters_.front().options().requires_grad(false);
  for (const Tensor& parameter : parameters_)
    require(parameter.scalar_type() == options.dtype() && parameter.device() == options.device(),
            "expected parameters of one type on one device");
  values = torch::empty({offsets_.back()}, options);
  gradients = torch::zeros_like(values);
  momenta = torch::zeros_like(values);
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    Tensor view = shaped(values, i);
    view.copy_(parameters_[i]);
    parameters_[i].set_data(view);
  }
  bfloat16_.resize(parameters_.size());
}

void FlatParameters::update_bfloat16() {
  const torch::NoGradGuard no_grad;
  if (!bfloat16_values.defined())
    bfloat16_values = torch::empty_like(values, values.options().dtype(torch::kBFloat16));
  bfloat16_values.copy_(values);
}

FlatParameters::Bfloat16Weights::Bfloat16Weights(FlatParameters& parameters,
                                                 torch::nn::Module& module) {
  require(parameters.bfloat16_values.defined(),
          "expected update_bfloat16() before Bfloat16Weights");
  module.apply([&](torch::nn::Module& layer) {
    if (auto* convolution = layer.as<torch::nn::Conv2d>()) {
      exchange(convolution->weight, parameters);
      if (convolution->bias.defined()) exchange(convolution->bias, parameters);
    } else if (auto* linear = layer.as<torch::nn::Linear>()) {
      exchange(linear->weight, parameters);
      if (linear->bias.defined()) exchange(linear->bias, parameters);
    }
  });
}

void FlatParameters::Bfloat16Weights::exchange(Tensor& weight, FlatParameters& parameters) {
  const auto& all = parameters.parameters_;
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const Tensor& other) { return other.is_same(weight); });
  require(found != all.end(), "expected weights of its own module");
  const auto index = std::size_t(found - all.begin());
  Tensor& copy = parameters.bfloat16_[index];
  if (!copy.defined())
    copy = parameters.shaped(parameters.bfloat16_values, index).detach().requires_grad_(true);
  own_.emplace_back(&weight, weight);
  weight = copy;
}

FlatParameters::Bfloat16Weights::~Bfloat16Weights() {
  for (auto& [place, weight] : own_) *place = weight;
}

Tensor FlatParameters::shaped(const Tensor& flat, std::size_t index) const {
  const Tensor& parameter = parameters_[index];
  const Tensor piece = flat.narrow(0, offsets_[index], offsets_[index + 1] - offsets_[index]);
  if (!in_channels_last_order(parameter)) return piece.view(parameter.sizes());
  const auto s = parameter.sizes();
  return piece.view({s[0], s[2], s[3], s[1]}).permute({0, 3, 1, 2});
}

void FlatParameters::clear_gradients() {
  for (Tensor& parameter : parameters_) parameter.mutable_grad().reset();
  for (Tensor& copy : bfloat16_)
    if (copy.defined()) copy.mutable_grad().reset();
}

const Tensor& FlatParameters::gradient_of(std::size_t index) const {
  const Tensor& copy = bfloat16_[index];
  return copy.defined() && copy.grad().defined() ? copy.grad() : parameters_[index].grad();
}

/// In the order of the buffers.
Tensor FlatParameters::flattened(const Tensor& gradient) const {
  return (in_channels_last_order(gradient) ? gradient.permute({0, 2, 3, 1}) : gradient)
      .reshape({-1});
}

void FlatParameters::gather_gradients(const Tensor& not_finite) {
  const torch::NoGradGuard no_grad;
  std::vector<GradientPiece> pieces;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& gradient = gradient_of(i);
    pieces.push_back({gradient.defined() ? flattened(gradient)
                                         : torch::zeros({parameters_[i].numel()}, values.options()),
                      offsets_[i]});
  }
  if (not_finite.defined()) {
    fused_gather(pieces, gradients, not_finite);
  } else {
    std::vector<Tensor> all;
    for (const GradientPiece& piece : pieces) all.push_back(piece.numbers.to(values.scalar_type()));
    at::cat_out(gradients, all);
  }
  clear_gradients();
}

NamedTensors FlatParameters::named_momenta() const {
  NamedTensors result;
  for (std::size_t i = 0; i < names_.size(); ++i)
    result.emplace_back(names_[i], shaped(momenta, i));
  return result;
}

void descend(FlatParameters& parameters, const Tensor& rate, const Tensor& halted, double momentum,
             double weight_decay) {
  const torch::NoGradGuard no_grad;
  // A halted step needs a zero gradient, not only a zero rate, because zero times NaN is NaN.
  parameters.gradients.masked_fill_(halted, 0);
  if (weight_decay != 0) parameters.gradients.add_(parameters.values, weight_decay);
  at::add_out(parameters.momenta, parameters.gradients, parameters.momenta, momentum);
  const Tensor applied = rate.masked_fill(halted, 0);
  parameters.values.addcmul_(parameters.momenta, applied, -1);
}

}  // namespace keel::lab
