// polar: the factor of procrustes.cpp and the symmetric positive one.

#include "keel/torch/polar.h"

#include "autograd.h"
#include "check.h"
#include "matrix_tensors.h"
#include "ops/operators.h"
#include "singular_formula.h"

namespace keel::ops {
namespace {

Tensor polar_positive_kernel(const Tensor& matrix, const Tensor&, const Tensor& values,
                             const Tensor& right) {
  if (matrix.is_meta()) return empty_beside(matrix, {matrix.sym_size(-1), matrix.sym_size(-1)});
  const WithoutAutocast in_its_type;
  const Tensor vh = in_compute_type(right), s = in_compute_type(values);
  return vh.mT().matmul(s.unsqueeze(-1) * vh).to(matrix.scalar_type());
}

Tensor polar_positive_autograd(const Tensor& matrix, const Tensor& factor, const Tensor& values,
                               const Tensor& right) {
  const Tensor a = in_compute_type(matrix), r = in_compute_type(factor),
               s = in_compute_type(values), vh = in_compute_type(right);
  const Tensor positive = polar_positive.below_autograd(a, r, s, vh);
  if (needs_graph({a}))
    record({.name = "keel::polar_positive",
            // The factor is a function of the matrix, so the whole derivative goes to the matrix.
            .inputs = {a},
            .outputs = {positive},
            .saved = {a, r, s, vh},
            .backward = [](const GraphNode::Pass& pass) -> variable_list {
              const variable_list& t = pass.saved;
              return {polar_positive_backward(pass.grads[0], t[0], t[1], t[2], t[3])};
            },
            .forward = [&]() -> variable_list {
              const WithoutAutocast in_its_type;
              const Tensor along = tangent_of(a), at = primal_of(a), r_at = primal_of(r);
              const Tensor turned = procrustes_backward(along, at, r_at, s, vh);
              const Tensor h = r_at.mT().matmul(along) + turned.mT().matmul(at);
              return {(h + h.mT()) / 2};
            }});
  return positive.to(matrix.scalar_type());
}

/// U C V^T with C_ij = s_i (P_ij + P_ji) / (s_i + s_j) and P = V^T dL_dpositive V. In the complement of V, s_i is paired
/// with 0.
Tensor polar_positive_backward_kernel(const Tensor& grad_positive, const Tensor& matrix,
                                      const Tensor& factor, const Tensor& values,
                                      const Tensor& right) {
  if (matrix.is_meta()) return empty_matrices(matrix);
  const WithoutAutocast in_its_type;
  if (values.numel() == 0) return at::zeros_like(matrix);
  const Tensor s = in_compute_type(values), vh = in_compute_type(right), v = vh.mT();
  const Tensor g = in_compute_type(grad_positive), both = g + g.mT(), both_v = both.matmul(v);
  const Tensor column = s.unsqueeze(-1), sums = pair_sums(s);
  const Tensor core = vh.matmul(both_v) * bounded_quotient(column.expand_as(sums), sums, s);
  const Tensor beside = both_v.mT() * bounded_quotient(column, column, s);
  return in_both_bases(in_compute_type(factor).matmul(v), vh, core, Tensor(), beside)
      .to(matrix.scalar_type());
}

/// The same from positive = factor^T matrix, in differentiable operations.
Tensor polar_positive_backward_autograd(const Tensor& grad_positive, const Tensor& matrix,
                                        const Tensor& factor, const Tensor& values,
                                        const Tensor& right) {
  const auto compute = [&] {
    return polar_positive_backward.below_autograd(grad_positive, matrix, factor, values, right);
  };
  if (!needs_graph({grad_positive, matrix, factor})) return compute();
  const WithoutAutocast in_its_type;
  const Tensor a = in_compute_type(matrix), r = in_compute_type(factor);
  const Tensor grad = in_compute_type(grad_positive), g = (grad + grad.mT()) / 2;
  const Tensor formula =
      r.matmul(g) +
      procrustes_backward(a.matmul(g), a, r, in_compute_type(values), in_compute_type(right));
  return with_derivatives_of(compute(), formula.to(matrix.scalar_type()));
}

Tensors<2> polar_of(const Tensor& matrix) {
  check_rectangles("keel::polar", matrix);
  const auto [factor, values, right] = procrustes(in_compute_type(matrix), false);
  const Tensor positive = polar_positive(in_compute_type(matrix), factor, values, right);
  return {factor.to(matrix.scalar_type()), positive.to(matrix.scalar_type())};
}

/// The trace of the positive factor, of the matrix or its transpose, whichever factor is smaller.
Tensor nuclear_norm_of(const Tensor& matrix) {
  check_rectangles("keel::nuclear_norm", matrix);
  const Tensor tall = matrix.sym_size(-2) < matrix.sym_size(-1) ? matrix.mT() : matrix;
  return std::get<1>(polar_of(tall)).diagonal(0, -2, -1).sum(-1);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(keel, m) {
  m.def("polar(Tensor matrix) -> (Tensor factor, Tensor positive)", &polar_of);
  m.def("nuclear_norm(Tensor matrix) -> Tensor", &nuclear_norm_of);
  m.def("polar_positive(Tensor matrix, Tensor factor, Tensor values, Tensor right) -> Tensor");
  m.def(
      "polar_positive_backward(Tensor grad_positive, Tensor matrix, Tensor factor, Tensor values,"
      " Tensor right) -> Tensor");
}
KEEL_OPERATOR("polar_positive", &polar_positive_kernel, &polar_positive_autograd)
KEEL_OPERATOR("polar_positive_backward", &polar_positive_backward_kernel,
              &polar_positive_backward_autograd)

}  // namespace keel::ops

namespace keel {

Polar polar(const torch::Tensor& matrix) {
  auto [factor, positive] = ops::polar_of(matrix);
  return {std::move(factor), std::move(positive)};
}

torch::Tensor nuclear_norm(const torch::Tensor& matrix) { return ops::nuclear_norm_of(matrix); }

}  // namespace keel
