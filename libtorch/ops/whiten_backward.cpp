#include "activations.h"
#include "autograd.h"
#include "check.h"
#include "ops/calls.h"
#include "ops/whiten.h"

namespace keel::ops {

using Gradients = std::tuple<Tensor, Tensor, Tensor>;

Gradients whiten_backward(const Tensor& grad_output, const Tensor& input,
                          const Optional<Tensor>& weight, const Tensor& mean,
                          const Tensor& covariance, const Tensor& subspace, const Tensor& values,
                          const Tensor& vectors, const Tensor& rank, StringView map,
                          StringView rule) {
  static const auto op = operator_named<decltype(whiten_backward)>("keel::whiten_backward");
  return op.call(grad_output, input, weight, mean, covariance, subspace, values, vectors, rank, map,
                 rule);
}

namespace {
constexpr const char* kWhitenBackward = "keel::whiten_backward";
}

std::int64_t check_whiten_backward(const Tensor& grad_output, const Tensor& input,
                                   const Optional<Tensor>& weight, const Tensor& mean,
                                   const Tensor& covariance, const Tensor& subspace,
                                   const Tensor& values, const Tensor& vectors,
                                   const Tensor& rank) {
  check_group_matrices(kWhitenBackward, "covariance", covariance, input);
  check_like(kWhitenBackward, "subspace", subspace, covariance);
  check_channels(kWhitenBackward, "weight", or_undefined(weight), input);
  const std::int64_t groups = covariance.sym_size(0).guard_int(__FILE__, __LINE__);
  check_activations(kWhitenBackward, "input", input, groups);
  check_like(kWhitenBackward, "grad_output", grad_output, input);
  check_channels(kWhitenBackward, "mean", mean, input);
  check_statistics(kWhitenBackward, "mean", mean, covariance);
  check_like(kWhitenBackward, "vectors", vectors, covariance);
  check_values(kWhitenBackward, "values", values, vectors);
  check_rank(kWhitenBackward, rank, vectors);
  return groups;
}

namespace {

/// One pass over (grad_output, input) for the cross moments, d x d work, one pass for grad_input.
Gradients whiten_backward_by_stages(const Tensor& grad_output, const Tensor& input,
                                    const Optional<Tensor>& weight, const Tensor& mean,
                                    const Tensor& covariance, const Tensor& subspace,
                                    const Tensor& values, const Tensor& vectors, const Tensor& rank,
                                    StringView map, StringView rule) {
  const std::int64_t groups = check_whiten_backward(grad_output, input, weight, mean, covariance,
                                                    subspace, values, vectors, rank);
  const Tensor dL_doutput = in_order(grad_output, order_of(input));
  const auto [sum, cross] = cross_moments(dL_doutput, input, if_defined(mean), groups);

  const Tensor scale = in_statistics_type(or_undefined(weight), input);
  const auto [dL_dweight, dL_dmean, dL_dsubspace, matrix] =
      scale_backward(if_defined(scale), subspace, sum, cross);
  const Tensor dL_dcovariance =
      subspace_backward(dL_dsubspace, covariance, values, vectors, rank, map, rule);
  return {affine_backward(dL_doutput, matrix, dL_dcovariance, dL_dmean, input, mean), dL_dweight,
          sum};
}

Gradients whiten_backward_autograd(const Tensor& grad_output, const Tensor& input,
                                   const Optional<Tensor>& weight, const Tensor& mean,
                                   const Tensor& covariance, const Tensor& subspace,
                                   const Tensor& values, const Tensor& vectors, const Tensor& rank,
                                   StringView map, StringView rule) {
  const auto compute = [&] {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    return whiten_backward(grad_output, input, weight, mean, covariance, subspace, values, vectors,
                           rank, map, rule);
  };
  if (!needs_graph({grad_output, input, or_undefined(weight)})) return compute();
  const variable_list grads = WithoutDerivative::apply(
      std::string("keel::whiten: no second derivative; compose keel::moments, keel::spectral and "
                  "keel::affine, which have one"),
      std::function<variable_list()>([&] {
        auto [grad_input, grad_weight, grad_bias] = compute();
        return variable_list{grad_input, grad_weight, grad_bias};
      }),
      grad_output, input, weight);
  return {grads[0], grads[1], grads[2]};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(keel, m) {
  m.def(
      "whiten_backward(Tensor grad_output, Tensor input, Tensor? weight, Tensor mean,"
      " Tensor covariance, Tensor subspace, Tensor values, Tensor vectors, Tensor rank, str map,"
      " str rule='exact')"
      " -> (Tensor grad_input, Tensor grad_weight, Tensor grad_bias)");
}
TORCH_LIBRARY_IMPL(keel, CompositeExplicitAutograd, m) {
  m.impl("whiten_backward", &whiten_backward_by_stages);
}
TORCH_LIBRARY_IMPL(keel, Autograd, m) { m.impl("whiten_backward", &whiten_backward_autograd); }

}  // namespace keel::ops
