// The operators svd and svdvals, and their gradient under a gradient rule, in tensor operations.

#include "keel/svd.h"

#include "autograd.h"
#include "check.h"
#include "complex_matrices.h"
#include "device.h"
#include "gradient_rule_formula.h"
#include "keel/gradient_rule.h"
#include "keel/torch/svd.h"
#include "matrix_tensors.h"
#include "ops/operators.h"
#include "singular_formula.h"

namespace keel::ops {
namespace {

constexpr const char* kSvd = "keel::svd";

/// A first derivative under the rule. Differentiating it again is an error where the masked rule leaves pairs out, because
/// the derivative of what it leaves out is unknown, and where a value is zero, because there it is an absolute value.
Tensor once_where_masked(const GradientRule& rule, const Tensor& derivative, const Tensor& values) {
  const auto* const masked = std::get_if<Masked>(&rule);
  if (masked == nullptr || values.sym_numel() == 0) return derivative;
  const Tensor s = values.detach();
  const Tensor where =
      masked_pairs(*masked, s).flatten(-2).any(-1).logical_or((s <= noise_of(s, *masked)).any(-1));
  return without_derivative_where(
      derivative, where,
      "keel::svd: no second derivative under rule masked where singular values repeat or vanish; "
      "keel::singular and its names, polar, procrustes and nuclear_norm have theirs there");
}

/// (..., k, k) identities in the type of `vectors`.
Tensor unit_like(const Tensor& vectors, const Tensor& values) {
  return at::diag_embed(at::ones_like(values, vectors.scalar_type()));
}

/// The core's middle of the gradient, of real numbers on the CPU.
Tensor middle_by_the_core(const GradientRule& rule, const Tensor& of_left, const Tensor& of_right,
                          const Tensor& values, const Tensor& dL_dvalues) {
  const Tensor s = values.contiguous(),
               g = dL_dvalues.defined() ? dL_dvalues.contiguous() : Tensor();
  const Tensor p = of_left.defined() ? readable(of_left) : Tensor(),
               q = of_right.defined() ? readable(of_right) : Tensor();
  const Tensor middle = empty_matrices(p.defined() ? p : q);
  AT_DISPATCH_FLOATING_TYPES(s.scalar_type(), kSvd, [&] {
    cpu::svd_backward_middle<scalar_t>(rule, s.data_ptr<scalar_t>(), matrices<const scalar_t>(p),
                                       matrices<const scalar_t>(q), data_or_null<const scalar_t>(g),
                                       matrices<scalar_t>(middle), libtorch_threads());
  });
  return middle;
}

/// The same in differentiable operations.
Tensor middle_formula(const GradientRule& rule, const Tensor& of_left, const Tensor& of_right,
                      const Tensor& values, const Tensor& dL_dvalues) {
  const Tensor apart = plus(of_left, of_right.defined() ? -of_right : Tensor());
  const Tensor unit = unit_like(apart, values);
  // Below autograd, eigh_backward calls the core. Above it, it evaluates the rule's differentiable formula.
  return eigh_backward(if_defined(dL_dvalues), plus(of_left, of_right), values, unit,
                       to_string(rule)) +
         quotient(rule, (apart - apart.mH()) / 2, pair_sums(values), values);
}

/// The gradient of A = left diag(values) right under the rule (docs/rectangular.md), in differentiable operations if
/// wanted. At least one of the incoming gradients is defined; undefined ones count as zero.
Tensor svd_backward_formula(const GradientRule& rule, bool differentiable, const Tensor& dL_dleft,
                            const Tensor& dL_dvalues, const Tensor& dL_dright, const Tensor& left,
                            const Tensor& values, const Tensor& right) {
  const WithoutAutocast in_its_type;
  if (values.sym_numel() == 0) return at::zeros_like(left.matmul(right));
  if (!dL_dleft.defined() && !dL_dright.defined())
    return left.matmul(dL_dvalues.unsqueeze(-1) * right);
  const Tensor of_left = dL_dleft.defined() ? left.mH().matmul(dL_dleft) : Tensor();
  const Tensor of_right = dL_dright.defined() ? right.matmul(dL_dright.mH()) : Tensor();
  const bool by_core = !differentiable && left.is_cpu() && !left.is_complex();
  const Tensor core =
      (by_core ? middle_by_the_core : middle_formula)(rule, of_left, of_right, values, dL_dvalues);
  const Tensor by_rows = values.unsqueeze(-1), by_columns = values.unsqueeze(-2);
  return in_both_bases(left, right, core,
                       dL_dleft.defined() ? quotient(rule, dL_dleft, by_columns, values) : Tensor(),
                       dL_dright.defined() ? quotient(rule, dL_dright, by_rows, values) : Tensor());
}

/// Its adjoint: the tangents of left, values and right under the rule, for the matrix's tangent `along`.
variable_list svd_tangents(const GradientRule& rule, const Tensor& along, const Tensor& left,
                           const Tensor& values, const Tensor& right) {
  const WithoutAutocast in_its_type;
  if (values.sym_numel() == 0)
    return {at::zeros_like(left), at::zeros_like(values), at::zeros_like(right)};
  const Tensor along_v = along.matmul(right.mH()), u_along = left.mH().matmul(along);
  const Tensor p = left.mH().matmul(along_v), unit = unit_like(left, values);
  const auto [by_values, together] = gradient_rule_tangents(rule, values, unit, p);
  const Tensor against = quotient(rule, (p - p.mH()) / 2, pair_sums(values), values);
  Tensor by_left = left.matmul(together + against);
  Tensor by_right = (together - against).mH().matmul(right);
  if (has_beside_left(left))
    by_left = by_left + quotient(rule, along_v - left.matmul(p), values.unsqueeze(-2), values);
  if (has_beside_right(right))
    by_right = by_right + quotient(rule, u_along - p.matmul(right), values.unsqueeze(-1), values);
  const auto once = [&](const Tensor& derivative) {
    return once_where_masked(rule, derivative, values);
  };
  return {once(by_left), once(by_values), once(by_right)};
}

Tensors<3> svd_kernel(const Tensor& matrix, StringView rule) {
  check_rectangles(kSvd, matrix, Numbers::real_or_complex);
  parsed(gradient_rule, kSvd, rule);  // report a bad rule now, not in backward
  if (matrix.is_meta()) return empty_svd(matrix);
  if (matrix.is_complex()) return complex_svd(matrix);
  const auto type = matrix.scalar_type();
  const Tensor input = readable(in_compute_type(matrix));
  const auto [left, values, right] = empty_svd(input);
  AT_DISPATCH_FLOATING_TYPES(input.scalar_type(), kSvd, [&] {
    on_device_of(input, KEEL_STAGE(svd<scalar_t>), rectangles<const scalar_t>(input),
                 values.data_ptr<scalar_t>(), rectangles<scalar_t>(left),
                 rectangles<scalar_t>(right), nullptr);
  });
  return {left.to(type), values.to(type), right.to(type)};
}

Tensors<3> svd_autograd(const Tensor& matrix, StringView rule) {
  check_rectangles(kSvd, matrix, Numbers::real_or_complex);
  if (!needs_graph({matrix})) return svd.below_autograd(matrix, rule);
  const Tensor a = in_compute_type(matrix);
  const auto [left, values, right] = svd.below_autograd(a, rule);
  record({.name = kSvd,
          .inputs = {a},
          .outputs = {left, values, right},
          .saved = {left, values, right},
          .backward = [by = text(rule)](const GraphNode::Pass& pass) -> variable_list {
            const variable_list &g = pass.grads, &s = pass.saved;
            return {svd_backward(if_defined(g[0]), if_defined(g[1]), if_defined(g[2]), s[0], s[1],
                                 s[2], by)};
          },
          .forward =
              [&, u = left, s = values, vh = right] {
                return svd_tangents(gradient_rule(text(rule)), tangent_of(a), u, s, vh);
              }});
  const auto type = matrix.scalar_type();
  return {left.to(type), values.to(type_of_values(matrix)), right.to(type)};
}

constexpr const char* kSvdvals = "keel::svdvals";

Tensor svdvals_kernel(const Tensor& matrix) {
  check_rectangles(kSvdvals, matrix, Numbers::real_or_complex);
  if (matrix.is_meta()) return std::get<1>(empty_svd(matrix));
  if (matrix.is_complex() || matrix.is_cuda()) return std::get<1>(svd_kernel(matrix, "masked"));
  const Tensor input = readable(in_compute_type(matrix)), values = std::get<1>(empty_svd(input));
  AT_DISPATCH_FLOATING_TYPES(input.scalar_type(), kSvdvals, [&] {
    cpu::svdvals<scalar_t>(rectangles<const scalar_t>(input), values.data_ptr<scalar_t>(), nullptr,
                           libtorch_threads());
  });
  return values.to(matrix.scalar_type());
}

/// With a gradient, the vectors are needed anyway.
Tensor svdvals_autograd(const Tensor& matrix) {
  check_rectangles(kSvdvals, matrix, Numbers::real_or_complex);
  if (needs_graph({matrix})) return std::get<1>(svd(matrix, "masked"));
  return svdvals.below_autograd(matrix);
}

constexpr const char* kSvdBackward = "keel::svd_backward";

GradientRule checked_svd_rule(const Optional<Tensor>& grad_left,
                              const Optional<Tensor>& grad_values,
                              const Optional<Tensor>& grad_right, const Tensor& left,
                              const Tensor& values, const Tensor& right, StringView rule) {
  check_rectangles(kSvdBackward, left, Numbers::real_or_complex);
  check_rectangles(kSvdBackward, right, Numbers::real_or_complex);
  check_like(kSvdBackward, "grad_left", or_undefined(grad_left), left);
  check_like(kSvdBackward, "grad_values", or_undefined(grad_values), values);
  check_like(kSvdBackward, "grad_right", or_undefined(grad_right), right);
  return parsed(gradient_rule, kSvdBackward, rule);
}

Tensor svd_backward_kernel(const Optional<Tensor>& grad_left, const Optional<Tensor>& grad_values,
                           const Optional<Tensor>& grad_right, const Tensor& left,
                           const Tensor& values, const Tensor& right, StringView rule) {
  const GradientRule chosen =
      checked_svd_rule(grad_left, grad_values, grad_right, left, values, right, rule);
  if (left.is_meta()) return empty_beside(left, {left.sym_size(-2), right.sym_size(-1)});
  return svd_backward_formula(
             chosen, /*differentiable=*/false, in_compute_type(or_undefined(grad_left)),
             in_compute_type(or_undefined(grad_values)), in_compute_type(or_undefined(grad_right)),
             in_compute_type(left), in_compute_type(values), in_compute_type(right))
      .to(left.scalar_type());
}

Tensor svd_backward_autograd(const Optional<Tensor>& grad_left, const Optional<Tensor>& grad_values,
                             const Optional<Tensor>& grad_right, const Tensor& left,
                             const Tensor& values, const Tensor& right, StringView rule) {
  const Tensor dL_dleft = or_undefined(grad_left), dL_dvalues = or_undefined(grad_values),
               dL_dright = or_undefined(grad_right);
  if (!needs_graph({dL_dleft, dL_dvalues, dL_dright, left, values, right}))
    return svd_backward.below_autograd(grad_left, grad_values, grad_right, left, values, right,
                                       rule);
  const GradientRule chosen =
      checked_svd_rule(grad_left, grad_values, grad_right, left, values, right, rule);
  const Tensor u = in_compute_type(left), s = in_compute_type(values), v = in_compute_type(right);
  Tensor dL_dmatrix =
      svd_backward_formula(chosen, /*differentiable=*/true, in_compute_type(dL_dleft),
                           in_compute_type(dL_dvalues), in_compute_type(dL_dright), u, s, v);
  dL_dmatrix = once_where_masked(chosen, dL_dmatrix, s);
  return dL_dmatrix.to(left.scalar_type());
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(keel, m) {
  m.def("svd(Tensor matrix, str rule='masked') -> (Tensor U, Tensor S, Tensor Vh)");
  m.def("svdvals(Tensor matrix) -> Tensor");
  m.def(
      "svd_backward(Tensor? grad_left, Tensor? grad_values, Tensor? grad_right, Tensor left,"
      " Tensor values, Tensor right, str rule='masked') -> Tensor");
}
KEEL_OPERATOR("svd", &svd_kernel, &svd_autograd)
KEEL_OPERATOR("svdvals", &svdvals_kernel, &svdvals_autograd)
KEEL_OPERATOR("svd_backward", &svd_backward_kernel, &svd_backward_autograd)

}  // namespace keel::ops

namespace keel {

Svd svd(const torch::Tensor& matrix, const GradientRule& rule) {
  ops::check_rectangles("keel::svd", matrix, ops::Numbers::real_or_complex);
  auto [left, values, right] = ops::svd(matrix, to_string(rule));
  return {std::move(left), std::move(values), std::move(right)};
}

torch::Tensor svdvals(const torch::Tensor& matrix) {
  ops::check_rectangles("keel::svdvals", matrix, ops::Numbers::real_or_complex);
  return ops::svdvals(matrix);
}

}  // namespace keel
