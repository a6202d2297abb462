#include "lab/models/batch_norm.h"

#include "keel/torch/nn.h"
#include "lab/models/fused_norm.h"

namespace keel::lab {
namespace {

using keel::nn::ProcessGroup;
using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// A sum over the processes, whose gradient is the sum of theirs.
struct SumOverProcesses : torch::autograd::Function<SumOverProcesses> {
  struct Group : torch::CustomClassHolder {
    ProcessGroup processes;
    explicit Group(ProcessGroup group) : processes(std::move(group)) {}
  };
  static Tensor forward(AutogradContext* context, const Tensor& own, const ProcessGroup& group) {
    context->saved_data["group"] = c10::IValue::make_capsule(c10::make_intrusive<Group>(group));
    Tensor sum = own.clone();
    group.sum(sum);
    return sum;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto group = context->saved_data["group"].toCapsule();
    Tensor sum = gradients[0].clone();
    static_cast<const Group&>(*group).processes.sum(sum);
    return {sum, Tensor()};
  }
};

/// Reshapes to (1, C, 1, 1, ...), to broadcast with activations.
Tensor per_channel(const Tensor& values, const Tensor& activations) {
  std::vector<std::int64_t> shape(std::size_t(activations.dim()), 1);
  shape[1] = -1;
  return values.view(shape);
}

}  // namespace

BatchNormImpl::BatchNormImpl(std::int64_t channels, double given_momentum, double given_eps)
    : Module("keel::lab::BatchNorm"), momentum(given_momentum), eps(given_eps) {
  weight = register_parameter("weight", torch::ones({channels}));
  bias = register_parameter("bias", torch::zeros({channels}));
  running_mean = register_buffer("running_mean", torch::zeros({channels}));
  running_var = register_buffer("running_var", torch::ones({channels}));
  num_batches_tracked = register_buffer("num_batches_tracked", torch::zeros({}, torch::kLong));
}

Tensor BatchNormImpl::forward(const Tensor& input) {
  TORCH_CHECK(input.dim() == 4 && input.size(1) == weight.size(0),
              "keel::lab::BatchNorm: expected (N, ", weight.size(0), ", H, W), got ",
              input.sizes());
  if (fuses(*this, input, /*residual=*/{}))
    return fused_norm(*this, input, /*residual=*/{}, /*relu=*/false).through;
  if (is_training()) num_batches_tracked.add_(1);
  if (processes.size() <= 1 || !is_training()) {
    const auto norm = [&](const Tensor& mean, const Tensor& variance, double share) {
      return torch::batch_norm(input, weight, bias, mean, variance, is_training(), share, eps,
                               at::globalContext().userEnabledCuDNN());
    };
    if (momentum || !is_training()) return norm(running_mean, running_var, momentum.value_or(0));
    // Only the device knows the weight of a plain average. torch's version would synchronise here.
    if (input.is_cpu())
      return norm(running_mean, running_var, 1 / num_batches_tracked.item<double>());
    const Tensor mean = torch::zeros_like(running_mean), variance = torch::zeros_like(running_var);
    const Tensor output = norm(mean, variance, /*share=*/1);
    track(mean, variance);
    return output;
  }
  return shared(input);
}

/// In torch's operators: the statistics in float64, and the rest in the activations' type, or in float32 for half types.
Tensor BatchNormImpl::shared(const Tensor& input) {
  const std::int64_t channels = input.size(1);
  const auto type = input.scalar_type() == torch::kDouble ? torch::kDouble : torch::kFloat;
  const Tensor x = input.to(type);
  const auto [own_variance, own_mean] =
      at::var_mean(x, std::vector<std::int64_t>{0, 2, 3}, /*unbiased=*/false);
  const Tensor m = own_mean.to(torch::kDouble), v = own_variance.to(torch::kDouble);
  const double count = double(input.numel() / channels);
  const Tensor sums = SumOverProcesses::apply(
      count * torch::cat({m, v + m * m, torch::ones({1}, m.options())}), processes);
  const Tensor total = sums.narrow(0, 2 * channels, 1).detach();
  const Tensor mean = sums.narrow(0, 0, channels) / total;
  const Tensor variance = (sums.narrow(0, channels, channels) / total - mean * mean).clamp_min(0);
  track(mean, variance * (total / (total - 1)));
  const Tensor scale = weight.to(torch::kDouble) * (variance + eps).rsqrt();
  const Tensor shift = bias.to(torch::kDouble) - mean * scale;
  return at::addcmul(per_channel(shift.to(type), x), x, per_channel(scale.to(type), x))
      .to(input.scalar_type());
}

void BatchNormImpl::track(const Tensor& mean, const Tensor& variance) {
  const torch::NoGradGuard no_grad;
  const auto type = running_mean.scalar_type();
  const Tensor share = momentum ? Tensor() : num_batches_tracked.to(type).reciprocal();
  for (auto [running, batch] : {std::pair(running_mean, mean), {running_var, variance}})
    momentum ? running.lerp_(batch.to(type), *momentum) : running.lerp_(batch.to(type), share);
}

void BatchNormImpl::pretty_print(std::ostream& stream) const {
  stream << name() << "(" << weight.size(0) << ", eps=" << eps << ", momentum=";
  if (momentum)
    stream << *momentum << ")";
  else
    stream << "none)";
}

std::optional<double>* momentum_of(torch::nn::Module& module) {
  auto* norm = module.as<BatchNormImpl>();
  return norm == nullptr ? nullptr : &norm->momentum;
}

void share_batches(torch::nn::Module& network, const ProcessGroup& processes, bool batch_norms) {
  network.apply([&](torch::nn::Module& module) {
    if (auto* whitening = module.as<keel::nn::WhiteningImpl>())
      whitening->options.process_group = processes;
    else if (auto* batch = module.as<BatchNormImpl>(); batch != nullptr && batch_norms)
      batch->processes = processes;
  });
}

}  // namespace keel::lab
