#include "keel/torch/polar.h"

#include "autograd.h"
#include "check.h"
#include "matrix_tensors.h"
#include "ops/operators.h"
#include "singular_formula.h"

namespace keel::ops {

Tensor polar_positive(const Tensor& matrix, const Tensor& factor, const Tensor& values,
                      const Tensor& right) {
  static const auto op = operator_named<decltype(polar_positive)>("keel::polar_positive");
  return op.call(matrix, factor, values, right);
}

Tensor polar_positive_backward(const Tensor& grad_positive, const Tensor& matrix,
                               const Tensor& factor, const Tensor& values, const Tensor& right) {
  static const auto op =
      operator_named<decltype(polar_positive_backward)>("keel::polar_positive_backward");
  return op.call(grad_positive, matrix, factor, values, right);
}

namespace {

Tensor polar_positive_kernel(const Tensor& matrix, const Tensor&, const Tensor& values,
                             const Tensor& right) {
  const WithoutAutocast in_its_type;
  const Tensor vh = in_compute_type(right), s = in_compute_type(values);
  return vh.mT().matmul(s.unsqueeze(-1) * vh).to(matrix.scalar_type());
}

Tensor polar_positive_meta(const Tensor& matrix, const Tensor&, const Tensor&, const Tensor&) {
  return empty_beside(matrix, {matrix.sym_size(-1), matrix.sym_size(-1)});
}

struct PolarPositiveNode : torch::autograd::Function<PolarPositiveNode> {
  static Tensor forward(AutogradContext* ctx, const Tensor& matrix, const Tensor& factor,
                        const Tensor& values, const Tensor& right) {
    const BelowAutograd below_autograd;
    ctx->set_materialize_grads(false);
    ctx->save_for_backward({matrix, factor, values, right});
    return polar_positive(matrix, factor, values, right);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    variable_list input_grads(4);
    if (!grads[0].defined()) return input_grads;
    const variable_list tensors = ctx->get_saved_variables();
    // The whole derivative goes to the matrix: the factor is a function of it.
    input_grads[0] =
        polar_positive_backward(grads[0], tensors[0], tensors[1], tensors[2], tensors[3]);
    return input_grads;
  }
};

Tensor polar_positive_autograd(const Tensor& matrix, const Tensor& factor, const Tensor& values,
                               const Tensor& right) {
  if (!needs_graph({matrix})) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    return polar_positive(matrix, factor, values, right);
  }
  return PolarPositiveNode::apply(in_compute_type(matrix), in_compute_type(factor),
                                  in_compute_type(values), in_compute_type(right))
      .to(matrix.scalar_type());
}

/// U C V^T with C_ij = s_i (P_ij + P_ji) / (s_i + s_j), P = V^T dL_dpositive V, and beside V the pair of s_i and 0.
Tensor polar_positive_backward_kernel(const Tensor& grad_positive, const Tensor& matrix,
                                      const Tensor& factor, const Tensor& values,
                                      const Tensor& right) {
  const WithoutAutocast in_its_type;
  if (values.numel() == 0) return at::zeros_like(matrix);
  const Tensor s = in_compute_type(values), vh = in_compute_type(right), v = vh.mT();
  const Tensor g = in_compute_type(grad_positive), both = g + g.mT(), both_v = both.matmul(v);
  const Tensor core = vh.matmul(both_v) * (s.unsqueeze(-1) * bounded_reciprocal(pair_sums(s), s));
  const Tensor beside = both_v.mT() * (s * bounded_reciprocal(s, s)).unsqueeze(-1);
  return in_both_bases(in_compute_type(factor).matmul(v), vh, core, Tensor(), beside)
      .to(matrix.scalar_type());
}

Tensor polar_positive_backward_meta(const Tensor&, const Tensor& matrix, const Tensor&,
                                    const Tensor&, const Tensor&) {
  return empty_matrices(matrix);
}

/// The same through positive = factor^T matrix.
Tensor polar_positive_backward_autograd(const Tensor& grad_positive, const Tensor& matrix,
                                        const Tensor& factor, const Tensor& values,
                                        const Tensor& right) {
  if (!needs_graph({grad_positive, matrix, factor})) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    return polar_positive_backward(grad_positive, matrix, factor, values, right);
  }
  const WithoutAutocast in_its_type;
  const Tensor a = in_compute_type(matrix), r = in_compute_type(factor);
  const Tensor grad = in_compute_type(grad_positive), g = (grad + grad.mT()) / 2;
  return (r.matmul(g) +
          procrustes_backward(a.matmul(g), a, r, in_compute_type(values), in_compute_type(right)))
      .to(matrix.scalar_type());
}

std::tuple<Tensor, Tensor> polar_of(const Tensor& matrix) {
  check_rectangles("keel::polar", matrix);
  const auto [factor, values, right] = procrustes(in_compute_type(matrix), false);
  const Tensor positive = polar_positive(in_compute_type(matrix), factor, values, right);
  return {factor.to(matrix.scalar_type()), positive.to(matrix.scalar_type())};
}

/// The trace of the positive factor, of the smaller size.
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
KEEL_OPERATOR("polar_positive", &polar_positive_kernel, &polar_positive_meta,
              &polar_positive_autograd)
KEEL_OPERATOR("polar_positive_backward", &polar_positive_backward_kernel,
              &polar_positive_backward_meta, &polar_positive_backward_autograd)

}  // namespace keel::ops

namespace keel {

Polar polar(const torch::Tensor& matrix) {
  auto [factor, positive] = ops::polar_of(matrix);
  return {std::move(factor), std::move(positive)};
}

torch::Tensor nuclear_norm(const torch::Tensor& matrix) { return ops::nuclear_norm_of(matrix); }

}  // namespace keel
