#include "activation_tensors.h"
#include "check.h"
#include "keel/torch/affine.h"
#include "keel/torch/nn.h"
#include "keel/torch/whiten.h"
#include "modules/synchronised_whiten.h"
#include "ops/operators.h"

namespace keel::nn {
namespace {

using torch::Tensor;

WhiteningOptions completed(const std::string& name, WhiteningOptions options, const LayerMap& map) {
  const std::int64_t channels = options.num_features;
  TORCH_CHECK_VALUE(channels > 0, name, ": expected num_features > 0, got ", channels);
  for (const auto& [what, number] :
       {std::pair("group_size", options.group_size), std::pair("groups", options.groups)})
    TORCH_CHECK_VALUE(!number || (*number > 0 && channels % *number == 0), name, ": expected ",
                      what, " to divide the channels, got ", what, " ", number.value_or(0), " and ",
                      channels, " channels");
  if (!options.group_size) options.group_size = channels / options.groups.value_or(1);
  if (!options.groups) options.groups = channels / *options.group_size;
  TORCH_CHECK_VALUE(*options.groups * *options.group_size == channels, name,
                    ": expected groups * group_size = num_features, got groups ", *options.groups,
                    ", group_size ", *options.group_size, " and ", channels, " channels");
  TORCH_CHECK_VALUE(!options.momentum || (*options.momentum >= 0 && *options.momentum <= 1), name,
                    ": expected a momentum in [0, 1] or none, got ", options.momentum.value_or(0));
  ops::with_torch_errors(name.c_str(), [&] {
    validate(map);
    term::check(options.rule);
  });
  options.rank = std::visit([](const auto& m) { return m.rank; }, map);
  return options;
}

template <typename Map>
LayerMap map_of(const WhiteningOptions& options) {
  Map map{.eps = options.eps};
  if (options.rank) map.rank = *options.rank;
  return map;
}

}  // namespace

WhiteningImpl::WhiteningImpl(std::string name, const WhiteningOptions& given, LayerMap map)
    : Module(std::move(name)), options(completed(this->name(), given, map)), map_(std::move(map)) {
  const std::int64_t channels = options.num_features, d = *options.group_size;
  if (options.affine) {
    weight = register_parameter("weight", torch::empty({channels}));
    bias = register_parameter("bias", torch::empty({channels}));
  }
  if (options.track_running_stats) {
    running_mean = register_buffer("running_mean", torch::empty({channels}));
    running_matrix = register_buffer("running_matrix", torch::empty({*options.groups, d, d}));
    if (std::holds_alternative<keel::PcaDenoising>(map_))
      running_variance = register_buffer("running_variance", torch::empty({channels}));
    num_batches_tracked = register_buffer("num_batches_tracked", torch::empty({}, torch::kLong));
  }
  reset_parameters();
}

ZcaWhiteningImpl::ZcaWhiteningImpl(const ZcaWhiteningOptions& options)
    : WhiteningImpl("keel::nn::ZcaWhitening", options, map_of<Zca>(options)) {}

PcaDenoisingImpl::PcaDenoisingImpl(const PcaDenoisingOptions& options)
    : WhiteningImpl("keel::nn::PcaDenoising", options, map_of<keel::PcaDenoising>(options)) {}

PcaWhiteningImpl::PcaWhiteningImpl(const PcaWhiteningOptions& options)
    : WhiteningImpl("keel::nn::PcaWhitening", options, map_of<keel::PcaWhitening>(options)) {}

void WhiteningImpl::reset_parameters() {
  const torch::NoGradGuard no_grad;
  if (weight.defined()) weight.fill_(1);
  if (bias.defined()) bias.fill_(0);
  reset_running_stats();
}

void WhiteningImpl::reset_running_stats() {
  if (!running_mean.defined()) return;
  const torch::NoGradGuard no_grad;
  running_mean.fill_(0);
  running_matrix.copy_(torch::eye(*options.group_size, running_matrix.options()));
  if (running_variance.defined()) running_variance.fill_(1);
  num_batches_tracked.fill_(0);
}

Tensor WhiteningImpl::forward(const Tensor& input) {
  return forward_then(options.activation, input);
}

Tensor WhiteningImpl::forward_then(Activation activation, const Tensor& input,
                                   const Tensor& residual) {
  TORCH_CHECK(input.dim() >= 2 && input.size(1) == options.num_features, name(), ": expected (N, ",
              options.num_features, ", *), got ", ops::shape_of(input));
  if (!is_training() && running_mean.defined())
    return ops::affine(input, evaluation_matrix(ops::compute_type(input.scalar_type())),
                       running_mean, ops::if_defined(bias), activation != Activation::none,
                       ops::if_defined(residual));
  // Like SyncBatchNorm, a layer in evaluation does not communicate.
  const ProcessGroup processes = is_training() ? options.process_group : ProcessGroup();
  const std::int64_t samples = ops::samples_of(input) * processes.size();
  if (samples > 1 && samples < *options.group_size && !warned_of_few_samples_) {
    warned_of_few_samples_ = true;
    TORCH_WARN(name(), ": ", samples, " samples of ", options.num_features,
               " channels in groups of ", *options.group_size, ": the covariance has rank ",
               samples - 1,
               " at most, and the directions beyond it are eps alone. Use smaller groups or larger "
               "batches.");
  }
  const Whitened batch = batch_step(input, residual, activation, processes);
  kept_ = batch.rank;
  eigenvalues_ = batch.values;
  covariance_ = batch.covariance;
  if (is_training() && running_mean.defined()) update_running_stats(batch);
  return batch.output;
}

Whitened WhiteningImpl::batch_step(const Tensor& input, const Tensor& residual,
                                   Activation activation, const ProcessGroup& processes) const {
  const bool relu = activation != Activation::none;
  if (processes.size() > 1)
    return synchronised_whiten(input, weight, bias, *options.groups, map_, options.rule, relu,
                               residual, processes);
  return whiten(input, weight, bias, *options.groups, map_, options.rule, relu, residual);
}

void WhiteningImpl::update_running_stats(const Whitened& batch) {
  const torch::NoGradGuard no_grad;
  ops::running_average(running_mean, running_matrix, ops::if_defined(running_variance),
                       num_batches_tracked, batch.mean, batch.covariance, batch.layer_matrix,
                       ops::to_torch(options.momentum), options.eps);
}

Tensor WhiteningImpl::evaluation_matrix(torch::Dtype type) const {
  Tensor matrix = running_matrix.to(type);
  if (running_variance.defined()) {
    const Tensor variance = running_variance.to(type) + options.eps;
    Tensor scale = variance.rsqrt();
    if (options.eps == 0) scale = torch::where(variance == 0, torch::zeros_like(scale), scale);
    matrix = matrix * scale.reshape({*options.groups, 1, -1});
  }
  if (weight.defined()) matrix = matrix * weight.to(type).reshape({*options.groups, -1, 1});
  return matrix;
}

void WhiteningImpl::to(torch::Device device, torch::Dtype type, bool non_blocking) {
  to(device, non_blocking);
  to(type, non_blocking);
}

void WhiteningImpl::to(torch::Dtype type, bool non_blocking) {
  // Module::to would convert this integer counter too, and a half-precision type would round it.
  const Tensor count = num_batches_tracked.defined() ? num_batches_tracked.clone() : Tensor();
  Module::to(type, non_blocking);
  if (count.defined()) num_batches_tracked.set_data(count);
}

void WhiteningImpl::take_state(const WhiteningImpl& from, const OptionalDevice& device) {
  const torch::NoGradGuard no_grad;
  const auto take = [&](Tensor& mine, const Tensor& theirs) {
    const Tensor copy = theirs.detach().clone();
    mine.set_data(device.has_value() ? copy.to(*device) : copy);
  };
  const auto theirs = from.named_parameters(/*recurse=*/false);
  for (auto& parameter : named_parameters(/*recurse=*/false)) {
    take(parameter.value(), theirs[parameter.key()]);
    parameter.value().set_requires_grad(theirs[parameter.key()].requires_grad());
  }
  const auto their_buffers = from.named_buffers(/*recurse=*/false);
  for (auto& buffer : named_buffers(/*recurse=*/false))
    take(buffer.value(), their_buffers[buffer.key()]);
  warned_of_few_samples_ = from.warned_of_few_samples_;
  train(from.is_training());
}

void WhiteningImpl::pretty_print(std::ostream& stream) const {
  const auto flag = [](bool on) { return on ? "true" : "false"; };
  stream << name() << "(" << options.num_features << ", groups=" << *options.groups
         << ", group_size=" << *options.group_size << ", eps=" << options.eps << ", momentum=";
  if (options.momentum)
    stream << *options.momentum;
  else
    stream << "none";
  stream << ", affine=" << flag(options.affine)
         << ", track_running_stats=" << flag(options.track_running_stats)
         << ", rule=" << to_string(options.rule) << ", rank=" << keel::to_string(*options.rank);
  if (options.activation != Activation::none) stream << ", activation=relu";
  if (options.process_group.size() > 1)
    stream << ", process_group=process " << options.process_group.process() << " of "
           << options.process_group.size();
  stream << ")";
}

}  // namespace keel::nn
