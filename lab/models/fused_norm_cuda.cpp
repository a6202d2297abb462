#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lab/models/fused_norm.h"
#include "lab/models/fused_norm_kernels.h"

namespace keel::lab {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr auto kOrder = at::MemoryFormat::ChannelsLast;

cuda::NormTask task_of(const Tensor& input, bool relu, const Tensor& scratch,
                       const Tensor& barriers) {
  cuda::NormTask task;
  task.bfloat16 = input.scalar_type() == torch::kBFloat16;
  task.channels = input.size(1);
  task.rows = input.numel() / input.size(1);
  task.relu = relu;
  task.scratch = scratch.data_ptr<float>();
  task.barriers = reinterpret_cast<unsigned*>(barriers.data_ptr<int>());
  return task;
}

Tensor scratch_for(const Tensor& input) {
  return torch::empty({std::int64_t(cuda::norm_scratch(input.size(1)))},
                      torch::dtype(torch::kFloat).device(input.device()));
}

/// Arguments of forward that have no gradient.
struct Running {
  Tensor running_mean, running_var, num_batches_tracked, barriers;
  double eps, momentum;
  bool relu, residual;
};

/// An autograd node takes no undefined tensor. Without a residual the input is passed in its place, and that argument
/// gets no gradient.
struct FusedNorm : torch::autograd::Function<FusedNorm> {
  static variable_list forward(AutogradContext* context, const Tensor& input, const Tensor& weight,
                               const Tensor& bias, const Tensor& residual, const Running& running) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const c10::cuda::CUDAGuard device(input.device());
    const Tensor scratch = scratch_for(input);
    const Tensor output = torch::empty_like(input, input.options(), kOrder);
    const Tensor statistics = torch::empty({3, input.size(1)}, scratch.options());
    cuda::NormForward task{task_of(input, running.relu, scratch, running.barriers)};
    task.input = input.data_ptr();
    task.residual = running.residual ? residual.data_ptr() : nullptr;
    task.weight = weight.data_ptr<float>();
    task.bias = bias.data_ptr<float>();
    task.eps = running.eps;
    task.momentum = running.momentum;
    task.running_mean = running.running_mean.data_ptr<float>();
    task.running_variance = running.running_var.data_ptr<float>();
    task.batches = running.num_batches_tracked.data_ptr<std::int64_t>();
    task.output = output.data_ptr();
    task.statistics = statistics.data_ptr<float>();
    C10_CUDA_CHECK(cuda::norm_forward(task, c10::cuda::getCurrentCUDAStream().stream()));
    const bool looks_at_output = running.relu && running.residual;
    context->save_for_backward(
        {input, looks_at_output ? output : Tensor(), statistics, bias, running.barriers});
    context->saved_data["relu"] = running.relu;
    context->saved_data["residual"] = running.residual;
    context->set_materialize_grads(false);  // unused outputs get no gradient instead of zeros
    return {output, output.alias()};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const torch::NoGradGuard no_grad;
    const variable_list saved = context->get_saved_variables();
    const Tensor &input = saved[0], &output = saved[1], &statistics = saved[2], &bias = saved[3],
                 &barriers = saved[4];
    const bool relu = context->saved_data["relu"].toBool(),
               residual = context->saved_data["residual"].toBool();
    const c10::cuda::CUDAGuard device(input.device());
    const auto in_place = [&](const Tensor& gradient) {
      return gradient.defined() ? gradient.to(input.scalar_type()).contiguous(kOrder) : Tensor();
    };
    const Tensor through = in_place(gradients[0]), past = in_place(gradients[1]);
    if (!through.defined() && !past.defined()) return variable_list(5);
    const Tensor given = through.defined() ? through : past,
                 more = through.defined() ? past : Tensor();
    const Tensor scratch = scratch_for(input);
    const Tensor dL_dinput = torch::empty_like(input, input.options(), kOrder);
    const Tensor dL_dresidual = residual && relu ? torch::empty_like(dL_dinput) : Tensor();
    const Tensor dL_dweight = torch::empty({input.size(1)}, scratch.options()),
                 dL_dbias = torch::empty_like(dL_dweight);
    cuda::NormBackward task{task_of(input, relu, scratch, barriers)};
    task.dL_doutput = given.data_ptr();
    task.more = more.defined() ? more.data_ptr() : nullptr;
    task.output = output.defined() ? output.data_ptr() : nullptr;
    task.input = input.data_ptr();
    task.statistics = statistics.data_ptr<float>();
    task.bias = bias.data_ptr<float>();
    task.dL_dinput = dL_dinput.data_ptr();
    task.dL_dresidual = dL_dresidual.defined() ? dL_dresidual.data_ptr() : nullptr;
    task.dL_dweight = dL_dweight.data_ptr<float>();
    task.dL_dbias = dL_dbias.data_ptr<float>();
    C10_CUDA_CHECK(cuda::norm_backward(task, c10::cuda::getCurrentCUDAStream().stream()));
    return {dL_dinput, dL_dweight, dL_dbias,
            residual && !relu ? (more.defined() ? given + more : given) : dL_dresidual, Tensor()};
  }
};

bool in_order(const Tensor& activations) {
  return activations.is_cuda() && activations.dim() == 4 && activations.is_contiguous(kOrder);
}

bool plain_floats(const Tensor& tensor, const Tensor& input) {
  return tensor.scalar_type() == torch::kFloat && tensor.is_contiguous() &&
         tensor.device() == input.device();
}

}  // namespace

bool fuses(const BatchNormImpl& norm, const Tensor& input, const Tensor& residual) {
  if (!norm.fused || !norm.is_training() || !norm.momentum || norm.processes.size() > 1)
    return false;
  const auto type = input.scalar_type();
  if (type != torch::kBFloat16 && type != torch::kFloat) return false;
  if (!in_order(input) || input.size(1) != norm.weight.size(0)) return false;
  if (input.numel() < 2 * input.size(1)) return false;  // no variance: let BatchNorm report it
  for (const Tensor& own : {norm.weight, norm.bias, norm.running_mean, norm.running_var})
    if (!plain_floats(own, input)) return false;
  // Module::to(type) converts this one too.
  if (norm.num_batches_tracked.scalar_type() != torch::kLong) return false;
  return !residual.defined() ||
         (in_order(residual) && residual.scalar_type() == type &&
          residual.device() == input.device() && residual.sizes() == input.sizes());
}

Forked fused_norm(BatchNormImpl& norm, const Tensor& input, const Tensor& residual, bool relu) {
  if (!norm.barriers.defined() || norm.barriers.device() != input.device())
    norm.barriers = torch::zeros({std::int64_t(cuda::norm_barriers(input.size(1)))},
                                 torch::dtype(torch::kInt).device(input.device()));
  const variable_list outputs =
      FusedNorm::apply(input, norm.weight, norm.bias, residual.defined() ? residual : input,
                       Running{norm.running_mean, norm.running_var, norm.num_batches_tracked,
                               norm.barriers, norm.eps, *norm.momentum, relu, residual.defined()});
  return {outputs[0], outputs[1]};
}

}  // namespace keel::lab
