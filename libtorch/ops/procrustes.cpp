// procrustes and special_procrustes, by the core's polar or by svd, and their gradient.

#include "keel/torch/procrustes.h"

#include <limits>

#include "autograd.h"
#include "check.h"
#include "device.h"
#include "keel/polar.h"
#include "matrix_tensors.h"
#include "ops/operators.h"
#include "singular_formula.h"

namespace keel::ops {
namespace {

void check_procrustes(const Tensor& matrix, bool special) {
  if (special)
    check_matrices("keel::special_procrustes", matrix);
  else
    check_rectangles("keel::procrustes", matrix, Numbers::real_or_complex);
}

/// The determinants of orthogonal matrices. For small ones LAPACK would take longer than the rest of the operator.
Tensor determinant(const Tensor& q) {
  const auto at = [&](std::int64_t i, std::int64_t j) { return q.select(-2, i).select(-1, j); };
  const auto minor = [&](std::int64_t i, std::int64_t j) {
    return at(1, i) * at(2, j) - at(1, j) * at(2, i);
  };
  if (q.size(-1) == 2) return at(0, 0) * at(1, 1) - at(0, 1) * at(1, 0);
  if (q.size(-1) == 3)
    return at(0, 0) * minor(1, 2) - at(0, 1) * minor(0, 2) + at(0, 2) * minor(0, 1);
  return at::linalg_det(q);
}

/// Straight from the matrix, in one pass on the CPU or one launch on CUDA.
Tensors<3> small_procrustes(const Tensor& matrix, bool special) {
  const Tensor input = readable(in_compute_type(matrix));
  const std::int64_t m = input.size(-2), n = input.size(-1), k = m < n ? m : n;
  const Tensor factor = empty_matrices(input), values = empty_beside(input, {k}),
               right = empty_beside(input, {k, n});
  const PolarKind kind = special ? PolarKind::rotation : PolarKind::orthogonal;
  AT_DISPATCH_FLOATING_TYPES(input.scalar_type(), "keel::procrustes", [&] {
    const PolarFactors<scalar_t> factors{values.data_ptr<scalar_t>(), rectangles<scalar_t>(right)};
    on_device_of(input, KEEL_STAGE(polar<scalar_t>), rectangles<const scalar_t>(input), kind,
                 rectangles<scalar_t>(factor), nullptr, factors);
  });
  const auto type = matrix.scalar_type();
  return {factor.to(type), values.to(type_of_values(matrix)), right.to(type)};
}

Tensors<3> procrustes_kernel(const Tensor& matrix, bool special) {
  check_procrustes(matrix, special);
  if (matrix.is_meta()) {
    const auto [left, values, right] = empty_svd(matrix);
    return {empty_matrices(matrix), values, right};
  }
  if (is_small(matrix)) return small_procrustes(matrix, special);
  const WithoutAutocast in_its_type;
  const auto type = matrix.scalar_type();
  const auto [left, values, right] = svd(in_compute_type(matrix), "masked");
  Tensor factor = left.matmul(right);
  if (special && values.numel() != 0) {
    // For a reflection, flip the last direction: subtract twice its part.
    const Tensor mirrored = (determinant(factor) < 0).to(values.scalar_type()).unsqueeze(-1);
    values.narrow(-1, values.size(-1) - 1, 1).mul_(1 - 2 * mirrored);
    const Tensor last = left.select(-1, -1) * (2 * mirrored);
    factor = factor - last.unsqueeze(-1) * right.select(-2, -1).unsqueeze(-2);
  }
  return {factor.to(type), values.to(type_of_values(matrix)), right.to(type)};
}

Tensors<3> procrustes_autograd(const Tensor& matrix, bool special) {
  check_procrustes(matrix, special);
  if (!needs_graph({matrix})) return procrustes.below_autograd(matrix, special);
  const Tensor a = in_compute_type(matrix);
  const auto [factor, values, right] = procrustes.below_autograd(a, special);
  record({.name = "keel::procrustes",
          .inputs = {a},
          .outputs = {factor},
          .saved = {a, factor, values, right},
          .backward = [](const GraphNode::Pass& pass) -> variable_list {
            const variable_list& s = pass.saved;
            return {procrustes_backward(pass.grads[0], s[0], s[1], s[2], s[3])};
          },
          // The map is its own adjoint.
          .forward = [&, r = factor, s = values, vh = right]() -> variable_list {
            return {procrustes_backward(tangent_of(a), primal_of(a), r, s, vh)};
          }});
  const auto type = matrix.scalar_type();
  return {factor.to(type), values.to(type_of_values(matrix)), right.to(type)};
}

Tensor nearest(const Tensor& matrix) { return std::get<0>(procrustes(matrix, false)); }

Tensors<2> nearest_rotation(const Tensor& matrix) {
  const auto [rotation, values, right] = procrustes(matrix, true);
  const c10::SymInt n = matrix.sym_size(-1);
  if (n < 2)  // there is only one rotation; a NaN stays NaN
    return {rotation, values.sum(-1) * 0 + std::numeric_limits<double>::infinity()};
  return {rotation, values.select(-1, -2) + values.select(-1, -1)};
}

/// keel.special_procrustes of Python, for torch.jit.script.
Tensor nearest_rotation_alone(const Tensor& matrix) {
  return std::get<0>(nearest_rotation(matrix));
}

constexpr const char* kProcrustesBackward = "keel::procrustes_backward";

void check_procrustes_backward(const Tensor& grad_factor, const Tensor& matrix,
                               const Tensor& factor) {
  check_rectangles(kProcrustesBackward, factor, Numbers::real_or_complex);
  check_like(kProcrustesBackward, "grad_factor", grad_factor, factor);
  check_like(kProcrustesBackward, "matrix", matrix, factor);
}

/// In one pass on the CPU or one launch on CUDA.
Tensor small_procrustes_backward(const Tensor& grad_factor, const Tensor& factor,
                                 const Tensor& values, const Tensor& right) {
  const Tensor g = readable(in_compute_type(grad_factor)), r = readable(in_compute_type(factor)),
               s = in_compute_type(values).contiguous(), vh = readable(in_compute_type(right));
  const Tensor result = empty_matrices(r);
  AT_DISPATCH_FLOATING_TYPES(r.scalar_type(), kProcrustesBackward, [&] {
    const PolarFactors<const scalar_t> factors{s.data_ptr<scalar_t>(),
                                               rectangles<const scalar_t>(vh)};
    on_device_of(r, KEEL_STAGE(polar_backward_from_factors<scalar_t>),
                 rectangles<const scalar_t>(r), factors, rectangles<const scalar_t>(g),
                 rectangles<scalar_t>(result));
  });
  return result.to(factor.scalar_type());
}

/// A pair's antihermitian part is divided by (s_i + s_j) / 2, and the part in the factor's complement by s_i.
Tensor procrustes_backward_kernel(const Tensor& grad_factor, const Tensor& matrix,
                                  const Tensor& factor, const Tensor& values, const Tensor& right) {
  check_procrustes_backward(grad_factor, matrix, factor);
  if (factor.is_meta()) return empty_matrices(factor);
  if (is_small(factor)) return small_procrustes_backward(grad_factor, factor, values, right);
  const WithoutAutocast in_its_type;
  const Tensor s = in_compute_type(values), vh = in_compute_type(right), v = vh.mH();
  const Tensor g = in_compute_type(grad_factor);
  if (s.numel() == 0) return at::zeros_like(grad_factor);
  const Tensor u = in_compute_type(factor).matmul(v), g_v = g.matmul(v), p = u.mH().matmul(g_v);
  const Tensor core = bounded_quotient(p - p.mH(), pair_sums(s), s);
  Tensor beside_left, beside_right;
  if (has_beside_left(u)) beside_left = bounded_quotient(g_v, s.unsqueeze(-2), s);
  if (has_beside_right(vh)) beside_right = bounded_quotient(u.mH().matmul(g), s.unsqueeze(-1), s);
  return in_both_bases(u, vh, core, beside_left, beside_right).to(factor.scalar_type());
}

/// The same in terms of R = factor and H = R^H matrix, which are smooth where values repeat, so that it can be
/// differentiated again. For m >= n it is R Y + (G - R R^H G) H^-1 with H Y + Y H = R^H G - G^H R.
Tensor procrustes_backward_formula(const Tensor& g, const Tensor& matrix, const Tensor& factor,
                                   const Tensor& values, const Tensor& right) {
  const Tensor h = factor.mH().matmul(matrix), positive = (h + h.mH()) / 2;
  const Tensor p = factor.mH().matmul(g);
  Tensor result = factor.matmul(
      positive_solve(2 * p, positive, values, right, /*both=*/true, /*symmetric=*/false));
  if (right.sym_size(-1) < factor.sym_size(-2))
    result = result + positive_solve(g - factor.matmul(p), positive, values, right, /*both=*/false,
                                     /*symmetric=*/false);
  return result;
}

Tensor procrustes_backward_autograd(const Tensor& grad_factor, const Tensor& matrix,
                                    const Tensor& factor, const Tensor& values,
                                    const Tensor& right) {
  if (!needs_graph({grad_factor, matrix, factor}))
    return procrustes_backward.below_autograd(grad_factor, matrix, factor, values, right);
  check_procrustes_backward(grad_factor, matrix, factor);
  const WithoutAutocast in_its_type;
  const Tensor g = in_compute_type(grad_factor), a = in_compute_type(matrix),
               r = in_compute_type(factor), s = in_compute_type(values),
               vh = in_compute_type(right).detach();
  // A wide matrix is transposed. The right vectors of the transpose are U.
  const Tensor result =
      a.sym_size(-2) < a.sym_size(-1)
          ? procrustes_backward_formula(g.mH(), a.mH(), r.mH(), s, vh.matmul(r.detach().mH())).mH()
          : procrustes_backward_formula(g, a, r, s, vh);
  return result.to(factor.scalar_type());
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(keel, m) {
  m.def(
      "procrustes_factor(Tensor matrix, bool special) -> (Tensor factor, Tensor values, Tensor "
      "right)");
  m.def("procrustes(Tensor matrix) -> Tensor", &nearest);
  m.def("special_procrustes(Tensor matrix) -> (Tensor rotation, Tensor margin)", &nearest_rotation);
  m.def("nearest_rotation(Tensor matrix) -> Tensor", &nearest_rotation_alone);
  m.def(
      "procrustes_backward(Tensor grad_factor, Tensor matrix, Tensor factor, Tensor values,"
      " Tensor right) -> Tensor");
}
KEEL_OPERATOR("procrustes_factor", &procrustes_kernel, &procrustes_autograd)
KEEL_OPERATOR("procrustes_backward", &procrustes_backward_kernel, &procrustes_backward_autograd)

}  // namespace keel::ops

namespace keel {

torch::Tensor procrustes(const torch::Tensor& matrix) {
  ops::check_rectangles("keel::procrustes", matrix, ops::Numbers::real_or_complex);
  return ops::nearest(matrix);
}

Rotation special_procrustes(const torch::Tensor& matrix) {
  ops::check_matrices("keel::special_procrustes", matrix);
  auto [rotation, margin] = ops::nearest_rotation(matrix);
  return {std::move(rotation), std::move(margin)};
}

}  // namespace keel
