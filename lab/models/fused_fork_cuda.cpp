#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lab/models/fused_fork.h"
#include "lab/models/fused_fork_kernels.h"

namespace keel::lab {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct FusedFork : torch::autograd::Function<FusedFork> {
  static variable_list forward(AutogradContext* context, const Tensor& output) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    context->save_for_backward({output});
    context->set_materialize_grads(false);  // unused outputs get no gradient instead of zeros
    return {output.alias(), output.alias()};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const torch::NoGradGuard no_grad;
    const Tensor saved = context->get_saved_variables()[0];
    const auto order = saved.suggest_memory_format();
    const auto in_order = [&](const Tensor& tensor) {
      return tensor.defined() ? tensor.to(saved.scalar_type()).contiguous(order) : Tensor();
    };
    const Tensor output = in_order(saved), first = in_order(gradients[0]),
                 second = in_order(gradients[1]);
    if (!first.defined() && !second.defined()) return variable_list(1);
    const Tensor given = first.defined() ? first : second,
                 more = first.defined() ? second : Tensor();
    const c10::cuda::CUDAGuard device(output.device());
    const Tensor dL_dinput = torch::empty_like(output, output.options(), order);
    cuda::ForkBackward task;
    task.bfloat16 = output.scalar_type() == torch::kBFloat16;
    task.count = output.numel();
    task.through = given.data_ptr();
    task.past = more.defined() ? more.data_ptr() : nullptr;
    task.output = output.data_ptr();
    task.dL_dinput = dL_dinput.data_ptr();
    C10_CUDA_CHECK(cuda::fork_backward(task, c10::cuda::getCurrentCUDAStream().stream()));
    return {dL_dinput};
  }
};

}  // namespace

bool fuses_fork(const keel::nn::WhiteningImpl& layer, const Tensor& input) {
  const auto type = input.scalar_type();
  return layer.is_training() && layer.options.process_group.size() <= 1 &&
         at::GradMode::is_enabled() && input.is_cuda() &&
         (type == torch::kBFloat16 || type == torch::kFloat);
}

Forked fused_fork(const Tensor& output) {
  const variable_list outputs = FusedFork::apply(output);
  return {outputs[0], outputs[1]};
}

}  // namespace keel::lab
