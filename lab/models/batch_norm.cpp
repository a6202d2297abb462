#include "lab/models/batch_norm.h"

#include "keel/torch/nn.h"
#include "lab/models/fused_norm.h"

namespace keel::lab {
namespace {

using keel::nn::ProcessGroup;
using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// The non-tensor state that backward needs.
struct Settings : torch::CustomClassHolder {
  ProcessGroup processes;
  double eps;
  Settings(ProcessGroup group, double e) : processes(std::move(group)), eps(e) {}
};

/// Reshapes to (1, C, 1, 1, ...), to broadcast with activations.
Tensor per_channel(const Tensor& values, const Tensor& activations) {
  std::vector<std::int64_t> shape(std::size_t(activations.dim()), 1);
  shape[1] = -1;
  return values.view(shape);
}

torch::Dtype statistics_type(const Tensor& input) {
  return input.scalar_type() == torch::kDouble ? torch::kDouble : torch::kFloat;
}

/// Mean and population variance of all processes' samples, and their number, in float64.
std::tuple<Tensor, Tensor, Tensor> global_statistics(const Tensor& input,
                                                     const ProcessGroup& processes) {
  // LibTorch's CPU kernel does not support half types.
  const Tensor x = input.is_cpu() ? input.to(statistics_type(input)) : input;
  const auto [own_mean, own_variance] =
      at::batch_norm_update_stats(x, /*running_mean=*/{}, /*running_var=*/{}, /*momentum=*/0);
  const double count = double(input.numel() / input.size(1));
  const Tensor mean = own_mean.to(torch::kDouble), variance = own_variance.to(torch::kDouble);
  Tensor sums = torch::cat(
      {count * mean, count * (variance + mean * mean), torch::full({1}, count, mean.options())});
  processes.sum(sums);
  const std::int64_t channels = mean.size(0);
  const Tensor total = sums.narrow(0, 2 * channels, 1);
  const Tensor global_mean = sums.narrow(0, 0, channels) / total;
  const Tensor global_variance =
      (sums.narrow(0, channels, channels) / total - global_mean * global_mean).clamp_min(0);
  return {global_mean, global_variance, total};
}

struct SharedBatchNorm : torch::autograd::Function<SharedBatchNorm> {
  static variable_list forward(AutogradContext* context, const Tensor& input, const Tensor& weight,
                               const Tensor& bias, const ProcessGroup& processes, double eps) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const auto [mean, variance, count] = global_statistics(input, processes);
    const auto type = statistics_type(input);
    const Tensor m = mean.to(type), v = variance.to(type);
    // Once the statistics are known, normalising is the same as in evaluation.
    const Tensor output = std::get<0>(
        at::native_batch_norm(input, weight, bias, m, v, /*training=*/false, /*momentum=*/0, eps));
    context->mark_non_differentiable({mean, variance, count});
    context->set_materialize_grads(false);
    context->save_for_backward({input, weight, m, v, count});
    context->saved_data["settings"] =
        c10::IValue::make_capsule(c10::make_intrusive<Settings>(processes, eps));
    return {output, mean, variance, count};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const Tensor &input = saved[0], &weight = saved[1], &mean = saved[2], &variance = saved[3],
                 &count = saved[4];
    const auto capsule = context->saved_data["settings"].toCapsule();
    const auto& settings = static_cast<const Settings&>(*capsule);
    // Other processes wait for this one's part, even if its own loss does not depend on the output.
    const Tensor given = gradients[0].defined() ? gradients[0] : torch::zeros_like(input);
    const torch::NoGradGuard no_grad;
    // dL_dinput as if the statistics were constants, and this process's sums of dL_dy xhat and dL_dy. CUDA's kernel
    // also needs the saved mean and inverse deviation.
    const Tensor inverse = (variance.to(torch::kDouble) + settings.eps).rsqrt();
    const auto [direct, dL_dweight, dL_dbias] = at::native_batch_norm_backward(
        given.contiguous(input.suggest_memory_format()), input, weight, mean, variance, mean,
        inverse.to(mean.scalar_type()), /*train=*/false, settings.eps, {true, true, true});
    Tensor sums = torch::cat({dL_dbias, dL_dweight}).to(torch::kDouble);
    settings.processes.sum(sums);
    const std::int64_t channels = mean.size(0);
    const Tensor shift = sums.narrow(0, 0, channels) / count,
                 tilt = sums.narrow(0, channels, channels) / count;
    // dL_dinput = direct - weight / deviation (shift + xhat tilt): affine in the input, per channel.
    const Tensor scale = weight.to(torch::kDouble) * inverse;
    const Tensor slope = -scale * inverse * tilt;
    const Tensor offset = -scale * shift - slope * mean.to(torch::kDouble);
    const auto type = statistics_type(input);
    const Tensor dL_dinput =
        at::addcmul(direct.to(type), input.to(type), per_channel(slope.to(type), input))
            .add_(per_channel(offset.to(type), input))
            .to(input.scalar_type());
    return {dL_dinput, dL_dweight, dL_dbias, Tensor(), Tensor()};
  }
};

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
  const variable_list out = SharedBatchNorm::apply(input, weight, bias, processes, eps);
  const Tensor &mean = out[1], &variance = out[2], &count = out[3];
  track(mean, variance * (count / (count - 1)));
  return out[0];
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
