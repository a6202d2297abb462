#include "autograd.h"
#include "check.h"
#include "device.h"
#include "gradient_rule_formula.h"
#include "keel/gradient_rule.h"
#include "matrix_tensors.h"
#include "ops/operators.h"
#include "singular_formula.h"

namespace keel::ops {

Tensor svd_backward(const Optional<Tensor>& grad_left, const Optional<Tensor>& grad_values,
                    const Optional<Tensor>& grad_right, const Tensor& left, const Tensor& values,
                    const Tensor& right, StringView rule) {
  static const auto op = operator_named<decltype(svd_backward)>("keel::svd_backward");
  return op.call(grad_left, grad_values, grad_right, left, values, right, rule);
}

namespace {

constexpr const char* kSvdBackward = "keel::svd_backward";

GradientRule checked_svd_rule(const Optional<Tensor>& grad_left,
                              const Optional<Tensor>& grad_values,
                              const Optional<Tensor>& grad_right, const Tensor& left,
                              const Tensor& values, const Tensor& right, StringView rule) {
  check_rectangles(kSvdBackward, left);
  check_rectangles(kSvdBackward, right);
  check_like(kSvdBackward, "grad_left", or_undefined(grad_left), left);
  check_like(kSvdBackward, "grad_values", or_undefined(grad_values), values);
  check_like(kSvdBackward, "grad_right", or_undefined(grad_right), right);
  return parsed(gradient_rule, kSvdBackward, rule);
}

/// A sum in which an undefined tensor is zero.
Tensor plus(const Tensor& a, const Tensor& b) {
  if (!a.defined()) return b;
  return b.defined() ? a + b : a;
}

/// The same on every floor: below autograd eigh_backward is the core's stage, above it the rule's formula.
Tensor svd_backward_formula(const GradientRule& chosen, const Tensor& dL_dleft,
                            const Tensor& dL_dvalues, const Tensor& dL_dright, const Tensor& left,
                            const Tensor& values, const Tensor& right) {
  const WithoutAutocast in_its_type;
  if (values.sym_numel() == 0) return at::zeros_like(left.matmul(right));
  if (!dL_dleft.defined() && !dL_dright.defined())
    return left.matmul(dL_dvalues.unsqueeze(-1) * right);
  const Tensor of_left = dL_dleft.defined() ? left.mT().matmul(dL_dleft) : Tensor();
  const Tensor of_right = dL_dright.defined() ? right.matmul(dL_dright.mT()) : Tensor();
  const Tensor apart = plus(of_left, of_right.defined() ? -of_right : Tensor());
  const Tensor unit = at::diag_embed(at::ones_like(values));
  const Tensor core = eigh_backward(if_defined(dL_dvalues), plus(of_left, of_right), values, unit,
                                    to_string(chosen)) +
                      (apart - apart.mT()) * (reciprocal(chosen, pair_sums(values), values) / 2);
  const Tensor inverse = reciprocal(chosen, values, values);
  return in_both_bases(left, right, core,
                       dL_dleft.defined() ? dL_dleft * inverse.unsqueeze(-2) : Tensor(),
                       dL_dright.defined() ? inverse.unsqueeze(-1) * dL_dright : Tensor());
}

Tensor svd_backward_kernel(const Optional<Tensor>& grad_left, const Optional<Tensor>& grad_values,
                           const Optional<Tensor>& grad_right, const Tensor& left,
                           const Tensor& values, const Tensor& right, StringView rule) {
  const GradientRule chosen =
      checked_svd_rule(grad_left, grad_values, grad_right, left, values, right, rule);
  return svd_backward_formula(chosen, in_compute_type(or_undefined(grad_left)),
                              in_compute_type(or_undefined(grad_values)),
                              in_compute_type(or_undefined(grad_right)), in_compute_type(left),
                              in_compute_type(values), in_compute_type(right))
      .to(left.scalar_type());
}

Tensor svd_backward_meta(const Optional<Tensor>& grad_left, const Optional<Tensor>& grad_values,
                         const Optional<Tensor>& grad_right, const Tensor& left,
                         const Tensor& values, const Tensor& right, StringView rule) {
  checked_svd_rule(grad_left, grad_values, grad_right, left, values, right, rule);
  return empty_beside(left, {left.sym_size(-2), right.sym_size(-1)});
}

/// Matrices with values that repeat or vanish: what the masked rule leaves out there has a derivative of its own.
Tensor masked_somewhere(const Masked& rule, const Tensor& left, const Tensor& values,
                        const Tensor& right) {
  const Tensor pairs = masked_pairs(rule, values).flatten(-2).any(-1);
  if (left.sym_size(-2) == right.sym_size(-1)) return pairs;
  return pairs.logical_or((values <= noise_of(values, rule)).any(-1));
}

Tensor svd_backward_autograd(const Optional<Tensor>& grad_left, const Optional<Tensor>& grad_values,
                             const Optional<Tensor>& grad_right, const Tensor& left,
                             const Tensor& values, const Tensor& right, StringView rule) {
  const Tensor dL_dleft = or_undefined(grad_left), dL_dvalues = or_undefined(grad_values),
               dL_dright = or_undefined(grad_right);
  if (!needs_graph({dL_dleft, dL_dvalues, dL_dright, left, values, right})) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    return svd_backward(grad_left, grad_values, grad_right, left, values, right, rule);
  }
  const GradientRule chosen =
      checked_svd_rule(grad_left, grad_values, grad_right, left, values, right, rule);
  const Tensor u = in_compute_type(left), s = in_compute_type(values), v = in_compute_type(right);
  Tensor dL_dmatrix =
      svd_backward_formula(chosen, in_compute_type(dL_dleft), in_compute_type(dL_dvalues),
                           in_compute_type(dL_dright), u, s, v);
  if (const auto* masked = std::get_if<Masked>(&chosen); masked && s.sym_numel() != 0)
    dL_dmatrix = without_derivative_where(
        dL_dmatrix, masked_somewhere(*masked, u, s.detach(), v),
        "keel::svd: no second derivative under rule masked where singular values repeat or vanish; "
        "keel::singular and its names, polar, procrustes and nuclear_norm have theirs there");
  return dL_dmatrix.to(left.scalar_type());
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(keel, m) {
  m.def(
      "svd_backward(Tensor? grad_left, Tensor? grad_values, Tensor? grad_right, Tensor left,"
      " Tensor values, Tensor right, str rule='masked') -> Tensor");
}
KEEL_OPERATOR("svd_backward", &svd_backward_kernel, &svd_backward_meta, &svd_backward_autograd)

}  // namespace keel::ops
