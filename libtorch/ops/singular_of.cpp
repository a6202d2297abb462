// Functions of singular values that the caller evaluates. The gradient's value comes from the kernels of singular_function.h,
// and its derivatives from the polar factors, as those of powers do in singular_backward.cpp.

#include "autograd.h"
#include "check.h"
#include "gradient_rule_formula.h"
#include "matrix_tensors.h"
#include "ops/operators.h"
#include "singular_formula.h"
#include "singular_function.h"

namespace keel::ops {
namespace {

constexpr const char* kSingularOf = "keel::singular";

void check_singular_of(const Tensor& matrix, const Tensor& values, const Jet& jet) {
  check_rectangles(kSingularOf, matrix, Numbers::real_or_complex);
  for (const Tensor& each : {jet.f, jet.slope, jet.curve})
    check_like(kSingularOf, "f", each, values);
}

Tensor singular_of_kernel(const Tensor& matrix, const Tensor& left, const Tensor& values,
                          const Tensor& right, const Optional<Tensor>& kept, const Tensor& f,
                          const Tensor& slope, const Tensor& curve) {
  check_singular_of(matrix, values, {f, slope, curve});
  if (matrix.is_meta()) return empty_matrices(matrix);
  const WithoutAutocast in_its_type;
  const Tensor used =
      kept.has_value() ? at::where(is_kept(values, *kept), f, at::zeros_like(f)) : f;
  return (left * used.unsqueeze(-2)).matmul(right);
}

Tensor singular_of_autograd(const Tensor& matrix, const Tensor& left, const Tensor& values,
                            const Tensor& right, const Optional<Tensor>& kept, const Tensor& f,
                            const Tensor& slope, const Tensor& curve) {
  const Tensor result =
      singular_of.below_autograd(matrix, left, values, right, kept, f, slope, curve);
  if (!needs_graph({matrix, f, slope, curve})) return result;
  const auto derivative = [](const Tensor& along, const variable_list& s) {
    return singular_of_backward(along, s[0], s[1], s[2], s[3], if_defined(s[4]), s[5], s[6], s[7]);
  };
  record({.name = kSingularOf,
          .inputs = {matrix, f, slope, curve},
          .outputs = {result},
          .saved = {matrix, left, values, right, or_undefined(kept), f, slope, curve},
          .backward =
              [derivative](const GraphNode::Pass& pass) {
                return to_list(derivative(pass.grads[0], pass.saved));
              },
          .forward = [&]() -> variable_list {
            const Tensor m = primal_of(matrix), y = primal_of(f);
            const Tensor dy = primal_of(slope), ddy = primal_of(curve);
            Tensor tangent;
            if (const Tensor along = tangent_of(matrix); along.defined())
              tangent = std::get<0>(
                  derivative(along, {m, left, values, right, or_undefined(kept), y, dy, ddy}));
            if (const Tensor moved = tangent_of(f); moved.defined())
              tangent = plus(tangent, singular_of(m, left, values, right, kept, moved, dy, ddy));
            return {tangent};
          }});
  return result;
}

Tensors<4> singular_of_backward_kernel(const Tensor& grad_result, const Tensor& matrix,
                                       const Tensor& left, const Tensor& values,
                                       const Tensor& right, const Optional<Tensor>& kept,
                                       const Tensor& f, const Tensor& slope, const Tensor& curve) {
  check_singular_of(matrix, values, {f, slope, curve});
  if (matrix.is_meta())
    return {empty_matrices(matrix), at::empty_like(f), at::empty_like(f), at::empty_like(f)};
  const WithoutAutocast in_its_type;
  const Tensor none = at::zeros_like(f);
  if (values.numel() == 0) return {at::zeros_like(matrix), none, none, none};
  const SingularKernels kernels = singular_kernels({f, slope, curve}, values, or_undefined(kept));
  const Tensor g_v = grad_result.matmul(right.mH()), p = left.mH().matmul(g_v);
  const Tensor core = (kernels.together * (p + p.mH()) + kernels.against * (p - p.mH())) / 2;
  const Tensor beside = kernels.beside, of_f = at::real(p.diagonal(0, -2, -1));
  const Tensor by_matrix = in_both_bases(
      left, right, core, has_beside_left(left) ? g_v * beside.unsqueeze(-2) : Tensor(),
      has_beside_right(right) ? beside.unsqueeze(-1) * left.mH().matmul(grad_result) : Tensor());
  return {by_matrix,
          kept.has_value() ? at::where(is_kept(values, *kept), of_f, none) : of_f.clone(), none,
          none.clone()};
}

/// The same as smooth functions of the matrix A = R H, of m >= n: X = R f(H).
Tensors<4> smooth_gradients(const Tensor& g, const Tensor& a, const Tensor& values,
                            const Tensor& vectors, const Jet& jet) {
  const auto [r, sizes, right] = procrustes(a, false);
  const Tensor h = polar_positive(a, r, sizes, right), of_h = r.mH().matmul(g);
  const auto& [f, slope, curve] = jet;
  const Tensor f_h = spectral_of(h, values, vectors, {}, f, slope, curve, 1);
  const Tensor by_h = spectral_of_backward(of_h, h, values, vectors, {}, f, slope, curve, 1);
  const auto [by_f, by_slope, by_curve] =
      spectral_of_weights(of_h, h, values, vectors, {}, f, slope, curve, 1);
  const Tensor by_a = procrustes_backward(g.matmul(f_h), a, r, sizes, right) +
                      polar_positive_backward(by_h, a, r, sizes, right);
  const Tensor zero = (values <= noise_of(values)).any(-1);
  const auto unless_zero = [&](const Tensor& x) {
    return without_derivative_where(x, zero,
                                    "keel::singular: no second derivative of a function of your "
                                    "own where singular values vanish");
  };
  return {unless_zero(by_a), unless_zero(by_f), unless_zero(by_slope), unless_zero(by_curve)};
}

Tensors<4> singular_of_backward_autograd(const Tensor& grad_result, const Tensor& matrix,
                                         const Tensor& left, const Tensor& values,
                                         const Tensor& right, const Optional<Tensor>& kept,
                                         const Tensor& f, const Tensor& slope,
                                         const Tensor& curve) {
  const auto found = singular_of_backward.below_autograd(grad_result, matrix, left, values, right,
                                                         kept, f, slope, curve);
  if (!needs_graph({grad_result, matrix, f, slope, curve})) return found;
  if (kept.has_value()) {
    record_without_derivative(
        "keel::singular: no second derivative of a function of your own with a rank policy; use "
        "rank policy full",
        {grad_result, matrix, f, slope, curve}, to_list(found));
    return found;
  }
  const WithoutAutocast in_its_type;
  const bool wide = has_beside_right(right);
  auto smooth =
      wide ? smooth_gradients(grad_result.mH(), matrix.mH(), values, left, {f, slope, curve})
           : smooth_gradients(grad_result, matrix, values, right.mH(), {f, slope, curve});
  if (wide) std::get<0>(smooth) = std::get<0>(smooth).mH();
  const auto same = [](const Tensor& value, const Tensor& formula) {
    return with_derivatives_of(value, formula);
  };
  return {
      same(std::get<0>(found), std::get<0>(smooth)), same(std::get<1>(found), std::get<1>(smooth)),
      same(std::get<2>(found), std::get<2>(smooth)), same(std::get<3>(found), std::get<3>(smooth))};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(keel, m) {
  m.def(
      "singular_of(Tensor matrix, Tensor left, Tensor values, Tensor right, Tensor? kept,"
      " Tensor f, Tensor slope, Tensor curve) -> Tensor");
  m.def(
      "singular_of_backward(Tensor grad_result, Tensor matrix, Tensor left, Tensor values,"
      " Tensor right, Tensor? kept, Tensor f, Tensor slope, Tensor curve)"
      " -> (Tensor, Tensor, Tensor, Tensor)");
}
KEEL_OPERATOR("singular_of", &singular_of_kernel, &singular_of_autograd)
KEEL_OPERATOR("singular_of_backward", &singular_of_backward_kernel, &singular_of_backward_autograd)

}  // namespace keel::ops

namespace keel {

Singular singular(const torch::Tensor& matrix, const ElementwiseFunction& function,
                  const RankPolicy& rank) {
  ops::check_rectangles("keel::singular", matrix, ops::Numbers::real_or_complex);
  const auto [left, values, right, kept] = ops::decompose_rectangles(matrix, to_string(rank));
  const torch::Tensor some = std::holds_alternative<FullRank>(rank) ? torch::Tensor() : kept;
  const auto [f, slope, curve] = ops::Jet::of("keel::singular", function, matrix, values, some);
  return {ops::singular_of(matrix.to(left.scalar_type()), left, values, right,
                           ops::if_defined(some), f, slope, curve)
              .to(matrix.scalar_type()),
          kept};
}

}  // namespace keel
