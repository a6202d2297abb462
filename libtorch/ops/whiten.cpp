// The training step of every whitening layer: moments -> subspace -> affine. It is made of those
// operators, so every device that has them has this; CUDA has one of its own (whiten_cuda.cpp).

#include "ops/whiten.h"

#include "activations.h"
#include "autograd.h"
#include "check.h"
#include "ops/calls.h"

namespace keel::ops {

using WhitenTensors = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;
using ForwardTensors = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;

WhitenTensors whiten(const Tensor& input, const Optional<Tensor>& weight,
                     const Optional<Tensor>& bias, std::int64_t groups, StringView map,
                     StringView rule) {
  static const auto op = operator_named<decltype(whiten)>("keel::whiten");
  return op.call(input, weight, bias, groups, map, rule);
}

ForwardTensors whiten_forward(const Tensor& input, const Optional<Tensor>& weight,
                              const Optional<Tensor>& bias, std::int64_t groups, StringView map,
                              StringView rule) {
  static const auto op = operator_named<decltype(whiten_forward)>("keel::whiten_forward");
  return op.call(input, weight, bias, groups, map, rule);
}

namespace {
constexpr const char* kWhiten = "keel::whiten";
}

void check_whiten(const Tensor& input, const Optional<Tensor>& weight, const Optional<Tensor>& bias,
                  std::int64_t groups) {
  check_activations(kWhiten, "input", input, groups);
  check_channels(kWhiten, "weight", or_undefined(weight), input);
  check_channels(kWhiten, "bias", or_undefined(bias), input);
  TORCH_CHECK_VALUE(samples_of(input) > 1, kWhiten,
                    ": expected more than 1 value per channel when training, got input size ",
                    shape_of(input));
}

namespace {

ForwardTensors whiten_forward_by_stages(const Tensor& input, const Optional<Tensor>& weight,
                                        const Optional<Tensor>& bias, std::int64_t groups,
                                        StringView map, StringView rule) {
  check_whiten(input, weight, bias, groups);
  auto [mean, covariance] = moments(input, groups);
  auto [result, values, vectors, found] = subspace(covariance, map, rule);
  const Tensor scale = in_statistics_type(or_undefined(weight), input);
  const Tensor matrix = scale.defined() ? result * scale.reshape({groups, -1, 1}) : result;
  Tensor output = affine(input, matrix, if_defined(mean), bias);
  return {output, mean, covariance, result, values, vectors, found};
}

struct WhitenNode : torch::autograd::Function<WhitenNode> {
  static variable_list forward(AutogradContext* ctx, const Tensor& input,
                               const Optional<Tensor>& weight, const Optional<Tensor>& bias,
                               std::int64_t groups, const std::string& map,
                               const std::string& rule) {
    const BelowAutograd below_autograd;
    auto [output, mean, covariance, result, values, vectors, found] =
        whiten_forward(input, weight, bias, groups, map, rule);
    ctx->set_materialize_grads(false);
    ctx->mark_non_differentiable({mean, covariance, result, values, vectors, found});
    ctx->saved_data["has_bias"] = or_undefined(bias).defined();
    ctx->saved_data["map"] = map;
    ctx->saved_data["rule"] = rule;
    // The input, and O(C d) numbers.
    ctx->save_for_backward(
        {input, or_undefined(weight), mean, covariance, result, values, vectors, found});
    return {output, mean, covariance, result, values, vectors, found};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    variable_list input_grads(6);
    if (!grads[0].defined()) return input_grads;
    const variable_list saved = ctx->get_saved_variables();
    auto& data = ctx->saved_data;
    auto [grad_input, grad_weight, grad_bias] = whiten_backward(
        grads[0], saved[0], if_defined(saved[1]), saved[2], saved[3], saved[4], saved[5], saved[6],
        saved[7], data["map"].toStringRef(), data["rule"].toStringRef());
    input_grads[0] = grad_input;
    if (saved[1].defined()) input_grads[1] = grad_weight;
    if (data["has_bias"].toBool()) input_grads[2] = grad_bias;
    return input_grads;
  }
};

ForwardTensors whiten_forward_autograd(const Tensor& input, const Optional<Tensor>& weight,
                                       const Optional<Tensor>& bias, std::int64_t groups,
                                       StringView map, StringView rule) {
  check_whiten(input, weight, bias, groups);
  // Converting outside the node lets each gradient come back in its own type.
  const Tensor w = in_statistics_type(or_undefined(weight), input),
               b = in_statistics_type(or_undefined(bias), input);
  if (!needs_graph({input, w, b})) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    return whiten_forward(input, if_defined(w), if_defined(b), groups, map, rule);
  }
  const variable_list out =
      WhitenNode::apply(input, if_defined(w), if_defined(b), groups, text(map), text(rule));
  return {out[0], out[1], out[2], out[3], out[4], out[5], out[6]};
}

WhitenTensors whiten_composite(const Tensor& input, const Optional<Tensor>& weight,
                               const Optional<Tensor>& bias, std::int64_t groups, StringView map,
                               StringView rule) {
  auto [output, mean, covariance, result, values, vectors, found] =
      whiten_forward(input, weight, bias, groups, map, rule);
  return {output, mean, covariance.diagonal(0, -2, -1).reshape({-1}), result, found};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(keel, m) {
  m.def(
      "whiten(Tensor input, Tensor? weight, Tensor? bias, int groups, str map,"
      " str rule='exact')"
      " -> (Tensor output, Tensor mean, Tensor variance, Tensor subspace, Tensor rank)",
      &whiten_composite);
  m.def(
      "whiten_forward(Tensor input, Tensor? weight, Tensor? bias, int groups, str map,"
      " str rule='exact')"
      " -> (Tensor output, Tensor mean, Tensor covariance, Tensor subspace, Tensor values,"
      " Tensor vectors, Tensor rank)");
}
TORCH_LIBRARY_IMPL(keel, CompositeExplicitAutograd, m) {
  m.impl("whiten_forward", &whiten_forward_by_stages);
}
TORCH_LIBRARY_IMPL(keel, Autograd, m) { m.impl("whiten_forward", &whiten_forward_autograd); }

Whitened whitened(const Tensor& input, const Tensor& weight, const Tensor& bias,
                  std::int64_t groups, const SubspaceMap& map, const SpectralRule& rule) {
  check_activations(kWhiten, "input", input, groups);
  auto [output, mean, covariance, subspace, values, vectors, rank] = whiten_forward(
      input, if_defined(weight), if_defined(bias), groups, to_string(map), to_string(rule));
  return {output, mean, /*variance=*/{}, subspace, rank, covariance, values};
}

}  // namespace keel::ops

namespace keel {

Whitened whiten(const torch::Tensor& input, const torch::Tensor& weight, const torch::Tensor& bias,
                std::int64_t groups, const SubspaceMap& map, const SpectralRule& rule) {
  Whitened result = ops::whitened(input, weight, bias, groups, map, rule);
  result.variance = result.covariance.diagonal(0, -2, -1).reshape({-1});
  return result;
}

}  // namespace keel
