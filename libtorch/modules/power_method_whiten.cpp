#include "modules/power_method_whiten.h"

#include "activations.h"
#include "autograd.h"
#include "check.h"
#include "keel/torch/affine.h"
#include "keel/torch/moments.h"
#include "keel/torch/nn/whitening.h"
#include "modules/held.h"
#include "modules/sum_over.h"
#include "ops/calls.h"

namespace keel::nn {
namespace {

using ops::AutogradContext;
using ops::variable_list;
using torch::Tensor;

/// The sum over all processes. Its gradient is the sum of theirs.
struct SumNode : torch::autograd::Function<SumNode> {
  static Tensor forward(AutogradContext* ctx, const Tensor& own, const ProcessGroup& processes) {
    ctx->saved_data["processes"] = hold(processes);
    Tensor total = own.detach().clone(at::MemoryFormat::Contiguous);
    sum_over(processes, total);
    return total;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto& processes = held<ProcessGroup>(ctx->saved_data["processes"]);
    return {SumNode::apply(grads[0], processes), Tensor()};
  }
};

std::tuple<Tensor, Tensor> moments_over(const ProcessGroup& processes, const Tensor& input,
                                        std::int64_t groups) {
  const std::int64_t samples = ops::samples_of(input);
  if (processes.size() == 1) {
    TORCH_CHECK_VALUE(samples > 1,
                      "keel::power_method: expected more than 1 value per channel when training, "
                      "got input size ",
                      ops::shape_of(input));
    const Moments found = moments(input, groups);
    return {found.mean, found.covariance};
  }
  // Without samples: zeros that hang on the input like any other, since all have to take part in backward.
  Moments own{input.transpose(0, 1).flatten(1).sum(1), {}};
  own.covariance = own.mean.new_zeros({groups, input.size(1) / groups, input.size(1) / groups});
  if (samples > 0) own = moments(input, groups);
  const auto type = ops::compute_type(input.scalar_type());
  const Tensor mean = own.mean.to(at::kDouble), one = torch::ones({1}, mean.options());
  const Tensor totals = SumNode::apply(torch::cat({one, mean}) * samples, processes),
               count = totals.narrow(0, 0, 1), middle = totals.narrow(0, 1, input.size(1)) / count;
  check_samples(processes, count);
  const Tensor off = (mean - middle).view({groups, -1, 1});
  const Tensor covariance = SumNode::apply((own.covariance + off * off.mT()) * samples, processes);
  return {middle.to(type), (covariance / count).to(type)};
}

}  // namespace

Whitened power_method_whiten(const Tensor& input, const Tensor& weight, const Tensor& bias,
                             std::int64_t groups, const SubspaceMap& map, const PowerMethod& method,
                             const ProcessGroup& processes) {
  const auto [mean, covariance] = moments_over(processes, input, groups);
  const auto [subspace, values, rank] =
      ops::power_method_subspace(covariance, to_string(map), to_string(LayerRule(method)));
  const Tensor matrix =
      weight.defined() ? subspace * weight.to(subspace.dtype()).reshape({groups, -1, 1}) : subspace;
  return {affine(input, matrix, mean, bias),
          mean.detach(),
          covariance.detach(),
          subspace.detach(),
          values.detach(),
          rank};
}

}  // namespace keel::nn
