#include "autograd.h"
#include "check.h"
#include "device.h"
#include "keel/polar.h"
#include "matrix_tensors.h"
#include "ops/operators.h"
#include "singular_formula.h"

namespace keel::ops {
namespace {

constexpr const char* kProcrustesBackward = "keel::procrustes_backward";

void check_procrustes_backward(const Tensor& grad_factor, const Tensor& matrix,
                               const Tensor& factor) {
  check_rectangles(kProcrustesBackward, factor);
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

/// A pair's antisymmetric part is divided by (s_i + s_j) / 2, and the part in the factor's complement by s_i.
Tensor procrustes_backward_kernel(const Tensor& grad_factor, const Tensor& matrix,
                                  const Tensor& factor, const Tensor& values, const Tensor& right) {
  check_procrustes_backward(grad_factor, matrix, factor);
  if (factor.is_meta()) return empty_matrices(factor);
  if (is_small(factor)) return small_procrustes_backward(grad_factor, factor, values, right);
  const WithoutAutocast in_its_type;
  const Tensor s = in_compute_type(values), vh = in_compute_type(right), v = vh.mT();
  const Tensor g = in_compute_type(grad_factor);
  if (s.numel() == 0) return at::zeros_like(grad_factor);
  const Tensor u = in_compute_type(factor).matmul(v), g_v = g.matmul(v), p = u.mT().matmul(g_v);
  const Tensor core = bounded_quotient(p - p.mT(), pair_sums(s), s);
  Tensor beside_left, beside_right;
  if (has_beside_left(u)) beside_left = bounded_quotient(g_v, s.unsqueeze(-2), s);
  if (has_beside_right(vh)) beside_right = bounded_quotient(u.mT().matmul(g), s.unsqueeze(-1), s);
  return in_both_bases(u, vh, core, beside_left, beside_right).to(factor.scalar_type());
}

/// The same in terms of R = factor and H = R^T matrix, which are smooth where values repeat, so that it can be
/// differentiated again. For m >= n it is R Y + (G - R R^T G) H^-1 with H Y + Y H = R^T G - G^T R.
Tensor procrustes_backward_formula(const Tensor& g, const Tensor& matrix, const Tensor& factor,
                                   const Tensor& values, const Tensor& right) {
  const Tensor h = factor.mT().matmul(matrix), positive = (h + h.mT()) / 2;
  const Tensor p = factor.mT().matmul(g);
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
          ? procrustes_backward_formula(g.mT(), a.mT(), r.mT(), s, vh.matmul(r.detach().mT())).mT()
          : procrustes_backward_formula(g, a, r, s, vh);
  return result.to(factor.scalar_type());
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(keel, m) {
  m.def(
      "procrustes_backward(Tensor grad_factor, Tensor matrix, Tensor factor, Tensor values,"
      " Tensor right) -> Tensor");
}
KEEL_OPERATOR("procrustes_backward", &procrustes_backward_kernel, &procrustes_backward_autograd)

}  // namespace keel::ops
