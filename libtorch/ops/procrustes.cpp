// procrustes and special_procrustes, by the core's polar or by svd. The gradient is procrustes_backward.cpp.

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
    check_rectangles("keel::procrustes", matrix);
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
  return {factor.to(type), values.to(type), right.to(type)};
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
  return {factor.to(type), values.to(type), right.to(type)};
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
  return {factor.to(type), values.to(type), right.to(type)};
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

}  // namespace

TORCH_LIBRARY_FRAGMENT(keel, m) {
  m.def(
      "procrustes_factor(Tensor matrix, bool special) -> (Tensor factor, Tensor values, Tensor "
      "right)");
  m.def("procrustes(Tensor matrix) -> Tensor", &nearest);
  m.def("special_procrustes(Tensor matrix) -> (Tensor rotation, Tensor margin)", &nearest_rotation);
  m.def("nearest_rotation(Tensor matrix) -> Tensor", &nearest_rotation_alone);
}
KEEL_OPERATOR("procrustes_factor", &procrustes_kernel, &procrustes_autograd)

}  // namespace keel::ops

namespace keel {

torch::Tensor procrustes(const torch::Tensor& matrix) {
  ops::check_rectangles("keel::procrustes", matrix);
  return ops::nearest(matrix);
}

Rotation special_procrustes(const torch::Tensor& matrix) {
  ops::check_matrices("keel::special_procrustes", matrix);
  auto [rotation, margin] = ops::nearest_rotation(matrix);
  return {std::move(rotation), std::move(margin)};
}

}  // namespace keel
