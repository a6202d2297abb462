#include "modules/synchronised_moments.h"

#include "activations.h"
#include "autograd.h"
#include "check.h"
#include "modules/held.h"
#include "ops/calls.h"

namespace keel::nn {
namespace {

using ops::AutogradContext;
using ops::if_defined;
using ops::variable_list;
using torch::Tensor;

void sum_over(const ProcessGroup& group, Tensor& tensor) {
  try {
    group.sum(tensor);
  } catch (const std::exception& error) {
    const auto* torchs = dynamic_cast<const c10::Error*>(&error);
    TORCH_CHECK(false, "keel::nn: the sum over ", group.size(), " processes failed on rank ",
                group.rank(), " (is another gone, or not at this layer?): ",
                torchs != nullptr ? torchs->what_without_backtrace() : error.what());
  }
}

struct SynchronisedMomentsNode : torch::autograd::Function<SynchronisedMomentsNode> {
  static variable_list forward(AutogradContext* ctx, const Tensor& input, std::int64_t groups,
                               const ProcessGroup& group) {
    const ops::BelowAutograd below_autograd;
    auto [mean, covariance, count] = global_moments(input, groups, group);
    ctx->saved_data["group"] = hold(group);
    ctx->save_for_backward({input, mean, count});
    return {mean, covariance};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const Tensor &input = saved[0], &mean = saved[1], &count = saved[2];
    const auto compute = [&]() -> variable_list {
      const torch::NoGradGuard no_grad;
      const auto [dL_dmean, dL_dcovariance] =
          global_gradients(grads[0], grads[1], held<ProcessGroup>(ctx->saved_data["group"]));
      const Tensor m = count.to(mean.scalar_type());
      return {ops::affine(input, (dL_dcovariance + dL_dcovariance.mT()) / m, mean, dL_dmean / m)};
    };
    if (!ops::needs_graph({grads[0], grads[1], input})) return {compute()[0], Tensor(), Tensor()};
    const auto once = ops::WithoutDerivative::apply(
        std::string("keel::nn: no second derivative of moments over several processes"),
        std::function<variable_list()>(compute), grads[0], grads[1], input);
    return {once[0], Tensor(), Tensor()};
  }
};

}  // namespace

GlobalMoments global_moments(const Tensor& input, std::int64_t groups, const ProcessGroup& group) {
  const std::int64_t channels = input.size(1);
  Tensor shift;
  if (input.scalar_type() == at::kDouble) {
    Tensor totals = ops::partial_moments(input, groups, {}).narrow(0, 0, 1 + channels).clone();
    sum_over(group, totals);
    shift = totals.narrow(0, 1, channels) / totals.narrow(0, 0, 1);
  }
  Tensor partial = ops::partial_moments(input, groups, if_defined(shift));
  sum_over(group, partial);
  const Tensor count = partial.narrow(0, 0, 1).clone();
  // On a GPU nobody waits to look: no samples give NaN there, and one gives zeros.
  if (count.is_cpu())
    TORCH_CHECK_VALUE(count.item<double>() > 1,
                      "keel::nn: expected more than 1 value per channel when training, got ",
                      std::int64_t(count.item<double>()), " in ", group.size(), " processes");
  auto [mean, covariance] = ops::moments_from_partial(partial, channels, groups, if_defined(shift),
                                                      ops::compute_type(input.scalar_type()));
  return {mean, covariance, count};
}

std::tuple<Tensor, Tensor> global_gradients(const Tensor& dL_dmean, const Tensor& dL_dcovariance,
                                            const ProcessGroup& group) {
  Tensor both = torch::cat({dL_dmean, dL_dcovariance.reshape({-1})});
  sum_over(group, both);
  const std::int64_t channels = dL_dmean.size(0);
  return {both.narrow(0, 0, channels),
          both.narrow(0, channels, both.size(0) - channels).view(dL_dcovariance.sizes())};
}

std::tuple<Tensor, Tensor> synchronised_moments(const Tensor& input, std::int64_t groups,
                                                const ProcessGroup& group) {
  ops::check_activations("keel::moments", "input", input, groups);
  if (!ops::needs_graph({input})) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    auto [mean, covariance, count] = global_moments(input, groups, group);
    return {mean, covariance};
  }
  const variable_list out = SynchronisedMomentsNode::apply(input, groups, group);
  return {out[0], out[1]};
}

}  // namespace keel::nn
