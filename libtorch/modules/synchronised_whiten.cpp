#include "modules/synchronised_whiten.h"

#include "activations.h"
#include "autograd.h"
#include "check.h"
#include "modules/held.h"
#include "modules/synchronised_moments.h"
#include "ops/calls.h"

namespace keel::nn {
namespace {

using ops::AutogradContext;
using ops::if_defined;
using ops::Optional;
using ops::variable_list;
using torch::Tensor;

constexpr const char* kWhiten = "keel::whiten";

/// All that is no tensor.
struct Settings {
  std::int64_t groups;
  SubspaceMap map;
  SpectralRule rule;
  ProcessGroup group;
};

struct Step {
  Tensor output, mean, covariance, subspace, values, vectors, rank, count;
};

Step step(const Tensor& input, const Tensor& weight, const Tensor& bias, const Settings& set) {
  const auto [mean, covariance, count] = global_moments(input, set.groups, set.group);
  auto [subspace, values, vectors, rank] =
      ops::subspace(covariance, to_string(set.map), to_string(set.rule));
  const Tensor matrix =
      weight.defined() ? subspace * weight.reshape({set.groups, -1, 1}) : subspace;
  return {ops::affine(input, matrix, mean, if_defined(bias)),
          mean,
          covariance,
          subspace,
          values,
          vectors,
          rank,
          count};
}

/// The gradients of weight, of bias and, if `with_input`, of the input.
variable_list step_back(const Tensor& dL_doutput, const Tensor& input, const Tensor& weight,
                        const Step& forward, const Settings& set, bool with_input) {
  const Tensor grad = ops::in_order(dL_doutput, ops::order_of(input));
  const auto [sum, cross] = ops::cross_moments(grad, input, forward.mean, set.groups);
  const auto [dL_dweight, own_dL_dmean, dL_dsubspace, matrix] =
      ops::scale_backward(if_defined(weight), forward.subspace, sum, cross);
  if (!with_input) return {dL_dweight, sum};

  const Tensor own_dL_dcovariance =
      ops::subspace_backward(dL_dsubspace, forward.covariance, forward.values, forward.vectors,
                             forward.rank, to_string(set.map), to_string(set.rule));
  const auto [dL_dmean, dL_dcovariance] =
      global_gradients(own_dL_dmean, own_dL_dcovariance, set.group);
  // affine_backward divides by this process's samples, and it should be those of all.
  const Tensor share =
      (double(ops::samples_of(input)) / forward.count).to(forward.mean.scalar_type());
  return {dL_dweight, sum,
          ops::affine_backward(grad, matrix, dL_dcovariance * share, dL_dmean * share, input,
                               forward.mean)};
}

struct SynchronisedWhitenNode : torch::autograd::Function<SynchronisedWhitenNode> {
  static variable_list forward(AutogradContext* ctx, const Tensor& input,
                               const Optional<Tensor>& weight, const Optional<Tensor>& bias,
                               const Settings& set) {
    const ops::BelowAutograd below_autograd;
    const Tensor w = ops::or_undefined(weight), b = ops::or_undefined(bias);
    const Step out = step(input, w, b, set);
    ctx->set_materialize_grads(false);
    ctx->mark_non_differentiable({out.mean, out.covariance, out.subspace, out.values, out.rank});
    ctx->saved_data["set"] = hold(set);
    ctx->saved_data["has_bias"] = b.defined();
    ctx->saved_data["with_input"] = input.requires_grad();
    ctx->save_for_backward({input, w, out.mean, out.covariance, out.subspace, out.values,
                            out.vectors, out.rank, out.count});
    return {out.output, out.mean, out.covariance, out.subspace, out.values, out.rank};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const Tensor &input = saved[0], &weight = saved[1];
    // No gradient here is no reason to stay away: others wait, and their losses depend on this input.
    const Tensor grad = grads[0].defined() ? grads[0] : torch::zeros_like(input);
    const bool with_input = ctx->saved_data["with_input"].toBool();
    const auto compute = [&]() -> variable_list {
      const torch::NoGradGuard no_grad;
      const Step out{{}, saved[2], saved[3], saved[4], saved[5], saved[6], saved[7], saved[8]};
      return step_back(grad, input, weight, out, held<Settings>(ctx->saved_data["set"]),
                       with_input);
    };
    const variable_list found =
        !ops::needs_graph({grad, input, weight})
            ? compute()
            : ops::WithoutDerivative::apply(
                  std::string("keel::nn: no second derivative of a layer over several processes"),
                  std::function<variable_list()>(compute), grad, input, if_defined(weight));
    variable_list input_grads(4);
    if (with_input) input_grads[0] = found[2];
    if (weight.defined()) input_grads[1] = found[0];
    if (ctx->saved_data["has_bias"].toBool()) input_grads[2] = found[1];
    return input_grads;
  }
};

}  // namespace

Whitened synchronised_whiten(const Tensor& input, const Tensor& weight, const Tensor& bias,
                             std::int64_t groups, const SubspaceMap& map, const SpectralRule& rule,
                             const ProcessGroup& group) {
  ops::check_activations(kWhiten, "input", input, groups);
  ops::check_channels(kWhiten, "weight", weight, input);
  ops::check_channels(kWhiten, "bias", bias, input);
  const Settings set{groups, map, rule, group};
  // Converting outside the node lets each gradient come back in its own type.
  const Tensor w = ops::in_statistics_type(weight, input), b = ops::in_statistics_type(bias, input);
  if (!ops::needs_graph({input, w, b})) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const Step out = step(input, w, b, set);
    return {out.output, out.mean, {}, out.subspace, out.rank, out.covariance, out.values};
  }
  const variable_list out = SynchronisedWhitenNode::apply(input, if_defined(w), if_defined(b), set);
  return {out[0], out[1], {}, out[3], out[5], out[2], out[4]};
}

}  // namespace keel::nn
