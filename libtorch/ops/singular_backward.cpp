#include "autograd.h"
#include "check.h"
#include "gradient_rule_formula.h"
#include "matrix_tensors.h"
#include "ops/operators.h"
#include "singular_formula.h"
#include "singular_function.h"

namespace keel::ops {
namespace {

constexpr const char* kSingularBackward = "keel::singular_backward";

void check_singular_backward(const Tensor& grad_result, const Tensor& matrix, const Tensor& kept) {
  check_rectangles(kSingularBackward, matrix, Numbers::real_or_complex);
  check_like(kSingularBackward, "grad_result", grad_result, matrix);
  check_rank(kSingularBackward, kept, matrix);
}

Tensor singular_backward_kernel(const Tensor& grad_result, const Tensor& matrix, const Tensor&,
                                const Tensor& left, const Tensor& values, const Tensor& right,
                                const Tensor& kept, StringView function, StringView) {
  check_singular_backward(grad_result, matrix, kept);
  const SingularFunction f = parsed(singular_function, kSingularBackward, function);
  if (matrix.is_meta()) return empty_matrices(matrix);
  const WithoutAutocast in_its_type;
  const Tensor u = in_compute_type(left), s = in_compute_type(values), vh = in_compute_type(right);
  const Tensor g = in_compute_type(grad_result);
  if (s.numel() == 0) return at::zeros_like(grad_result);
  const SingularKernels kernels = singular_kernels(f, s, kept);
  const Tensor g_v = g.matmul(vh.mH()), p = u.mH().matmul(g_v), beside = kernels.beside;
  const Tensor core = (kernels.together * (p + p.mH()) + kernels.against * (p - p.mH())) / 2;
  return in_both_bases(u, vh, core, has_beside_left(u) ? g_v * beside.unsqueeze(-2) : Tensor(),
                       has_beside_right(vh) ? beside.unsqueeze(-1) * u.mH().matmul(g) : Tensor())
      .to(matrix.scalar_type());
}

// Gradients at full rank written as smooth functions of the matrix, so that they can be differentiated again. A is the
// matrix, X the result and G its gradient. An undefined tensor means that there is no such form.

template <typename Other>
Tensor smooth_gradient(const Other&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                       const Tensor&) {
  return {};
}

Tensor smooth_gradient(const UnitValues&, const Tensor& g, const Tensor& a, const Tensor& x,
                       const Tensor& values, const Tensor& right) {
  return procrustes_backward(g, a, x, values, right);
}

Tensor smooth_gradient(const SameValues&, const Tensor& g, const Tensor&, const Tensor&,
                       const Tensor&, const Tensor&) {
  return g.clone();
}

/// The derivative of the pseudo-inverse X^H at constant rank.
Tensor smooth_gradient(const InverseValues& f, const Tensor& g, const Tensor& a, const Tensor& x,
                       const Tensor&, const Tensor&) {
  if (f.rtol) return {};
  const Tensor outside_left = g - x.matmul(a.mH().matmul(g));
  const Tensor outside_right = g - g.matmul(a.mH()).matmul(x);
  return outside_left.matmul(x.mH()).matmul(x) + x.matmul(x.mH()).matmul(outside_right) -
         x.matmul(g.mH()).matmul(x);
}

// Powers s^p, for m >= n. Above 1 they are A times a matrix whose derivative goes through A^H A alone: no direction beside A's
// columns is divided by a singular value.

std::string power_of(double exponent) {
  return to_string(SpectralFunction{SpectralFunction::Kind::power, exponent});
}

/// X = A (A^H A)^((p - 1) / 2), from p = 3 on. In units of the largest value, so that squares stay in range.
Tensor gradient_of_gram_power(double exponent, const Tensor& grad, const Tensor& matrix,
                              const Tensor& values) {
  const Tensor largest = values.detach().narrow(-1, 0, 1).unsqueeze(-1);
  const Tensor unit = at::where(largest > 0, largest, at::ones_like(largest));
  const Tensor a = divided(matrix, unit), g = grad * unit.pow(exponent - 1);
  const Tensor gram = a.mH().matmul(a), of_gram = a.mH().matmul(g);
  const std::string power = power_of((exponent - 1) / 2);
  const auto [f_gram, l, v, rank] = spectral(gram, power, "full", "exact");
  const Tensor by_gram =
      spectral_backward(of_gram + of_gram.mH(), gram, l, v, rank, power, "full", "exact");
  return g.matmul(f_gram) + a.matmul(by_gram);
}

/// X = A H^(p - 1), where A^H A = H H, and so H dH + dH H = d(A^H A). Its square would lose small values.
Tensor gradient_of_root_power(double exponent, const Tensor& g, const Tensor& a) {
  const auto [r, values, vectors] = procrustes(a, false);
  const Tensor h = polar_positive(a, r, values, vectors), of_h = a.mH().matmul(g);
  const std::string power = power_of(exponent - 1);
  const auto [f_h, l, v, rank] = spectral(h, power, "full", "exact");
  const Tensor by_h = spectral_backward(of_h + of_h.mH(), h, l, v, rank, power, "full", "exact");
  return g.matmul(f_h) +
         a.matmul(positive_solve(by_h, h, values, vectors, /*both=*/true, /*symmetric=*/true));
}

/// X = R f(H) with the polar factors R and H of A.
Tensor gradient_of_polar_power(double exponent, const Tensor& g, const Tensor& a) {
  const auto [r, values, vectors] = procrustes(a, false);
  const Tensor h = polar_positive(a, r, values, vectors), of_h = r.mH().matmul(g);
  const std::string power = power_of(exponent);
  const auto [f_h, l, v, rank] = spectral(h, power, "full", "exact");
  const Tensor by_h =
      spectral_backward((of_h + of_h.mH()) / 2, h, l, v, rank, power, "full", "exact");
  return procrustes_backward(g.matmul(f_h), a, r, values, vectors) +
         polar_positive_backward(by_h, a, r, values, vectors);
}

Tensor smooth_gradient(const PowerOfValues& f, const Tensor& g, const Tensor& a, const Tensor& x,
                       const Tensor& s, const Tensor& right) {
  const double p = f.exponent;
  if (p == 1 || s.sym_size(-1) == 0) return g + 0 * a;  // tied to a, as other powers are
  if (a.sym_size(-2) < a.sym_size(-1)) return smooth_gradient(f, g.mH(), a.mH(), x, s, right).mH();
  if (p >= 3) return gradient_of_gram_power(p, g, a, s);
  const Tensor gradient =
      p > 1 ? gradient_of_root_power(p, g, a) : gradient_of_polar_power(p, g, a);
  if (p <= 0 || p > 2) return gradient;
  return without_derivative_where(gradient, (s <= noise_of(s)).any(-1),
                                  "keel::singular: no second derivative of " +
                                      to_string(SingularFunction(f)) +
                                      " where singular values vanish; powers above 2 have theirs");
}

Tensor singular_backward_autograd(const Tensor& grad_result, const Tensor& matrix,
                                  const Tensor& result, const Tensor& left, const Tensor& values,
                                  const Tensor& right, const Tensor& kept, StringView function,
                                  StringView rank) {
  const auto compute = [&] {
    return singular_backward.below_autograd(grad_result, matrix, result, left, values, right, kept,
                                            function, rank);
  };
  if (!needs_graph({grad_result, matrix, result})) return compute();
  check_singular_backward(grad_result, matrix, kept);
  const SingularFunction f = parsed(singular_function, kSingularBackward, function);
  if (std::holds_alternative<FullRank>(parsed(rank_policy, kSingularBackward, rank))) {
    const WithoutAutocast in_its_type;
    const Tensor smooth = std::visit(
        [&](const auto& chosen) {
          return smooth_gradient(chosen, in_compute_type(grad_result), in_compute_type(matrix),
                                 in_compute_type(result), in_compute_type(values),
                                 in_compute_type(right));
        },
        f);
    if (smooth.defined()) return with_derivatives_of(compute(), smooth.to(matrix.scalar_type()));
  }
  const Tensor dL_dmatrix = compute();
  record_without_derivative("keel::singular: no second derivative of " + text(function) +
                                " with rank policy " + text(rank) +
                                "; at full rank one, identity, inv and power have theirs",
                            {grad_result, matrix, result}, {dL_dmatrix});
  return dL_dmatrix;
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(keel, m) {
  m.def(
      "singular_backward(Tensor grad_result, Tensor matrix, Tensor result, Tensor left,"
      " Tensor values, Tensor right, Tensor kept, str function, str rank='full') -> Tensor");
}
KEEL_OPERATOR("singular_backward", &singular_backward_kernel, &singular_backward_autograd)

}  // namespace keel::ops
