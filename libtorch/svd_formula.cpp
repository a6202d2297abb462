#include "svd_formula.h"

#include "gradient_rule_formula.h"
#include "ops/operators.h"
#include "singular_formula.h"

namespace keel::ops {

// Below autograd, eigh_backward calls the core. Above it, it evaluates the rule's differentiable formula.
Tensor svd_backward_formula(const GradientRule& rule, const Tensor& dL_dleft,
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
                                    to_string(rule)) +
                      quotient(rule, (apart - apart.mT()) / 2, pair_sums(values), values);
  const Tensor by_rows = values.unsqueeze(-1), by_columns = values.unsqueeze(-2);
  return in_both_bases(left, right, core,
                       dL_dleft.defined() ? quotient(rule, dL_dleft, by_columns, values) : Tensor(),
                       dL_dright.defined() ? quotient(rule, dL_dright, by_rows, values) : Tensor());
}

torch::autograd::variable_list svd_tangents(const GradientRule& rule, const Tensor& along,
                                            const Tensor& left, const Tensor& values,
                                            const Tensor& right) {
  const WithoutAutocast in_its_type;
  if (values.sym_numel() == 0)
    return {at::zeros_like(left), at::zeros_like(values), at::zeros_like(right)};
  const Tensor along_v = along.matmul(right.mT()), u_along = left.mT().matmul(along);
  const Tensor p = left.mT().matmul(along_v), unit = at::diag_embed(at::ones_like(values));
  const auto [by_values, together] = gradient_rule_tangents(rule, values, unit, p);
  const Tensor against = quotient(rule, (p - p.mT()) / 2, pair_sums(values), values);
  Tensor by_left = left.matmul(together + against);
  Tensor by_right = (together - against).mT().matmul(right);
  if (has_beside_left(left))
    by_left = by_left + quotient(rule, along_v - left.matmul(p), values.unsqueeze(-2), values);
  if (has_beside_right(right))
    by_right = by_right + quotient(rule, u_along - p.matmul(right), values.unsqueeze(-1), values);
  const auto once = [&](const Tensor& derivative) {
    return once_where_masked(rule, derivative, left, values, right);
  };
  return {once(by_left), once(by_values), once(by_right)};
}

Tensor once_where_masked(const GradientRule& rule, const Tensor& derivative, const Tensor& left,
                         const Tensor& values, const Tensor& right) {
  const auto* const masked = std::get_if<Masked>(&rule);
  if (masked == nullptr || values.sym_numel() == 0) return derivative;
  const Tensor s = values.detach();
  Tensor where = masked_pairs(*masked, s).flatten(-2).any(-1);
  if (has_beside_left(left) || has_beside_right(right))
    where = where.logical_or((s <= noise_of(s, *masked)).any(-1));
  return without_derivative_where(
      derivative, where,
      "keel::svd: no second derivative under rule masked where singular values repeat or vanish; "
      "keel::singular and its names, polar, procrustes and nuclear_norm have theirs there");
}

}  // namespace keel::ops
