// The operator eigh_backward: the gradient of eigh.cpp under a gradient rule.

#include "keel/gradient_rule.h"

#include "autograd.h"
#include "check.h"
#include "device.h"
#include "gradient_rule_formula.h"
#include "matrix_tensors.h"
#include "ops/operators.h"

namespace keel::ops {
namespace {

constexpr const char* kEighBackward = "keel::eigh_backward";

GradientRule checked_rule(const Optional<Tensor>& grad_values, const Optional<Tensor>& grad_vectors,
                          const Tensor& values, const Tensor& vectors, StringView rule) {
  check_matrices(kEighBackward, vectors, Numbers::real_or_complex);
  check_values(kEighBackward, "values", values, vectors);
  check_values(kEighBackward, "grad_values", or_undefined(grad_values), vectors);
  check_like(kEighBackward, "grad_vectors", or_undefined(grad_vectors), vectors);
  return parsed(gradient_rule, kEighBackward, rule);
}

Tensor eigh_backward_kernel(const Optional<Tensor>& grad_values,
                            const Optional<Tensor>& grad_vectors, const Tensor& values,
                            const Tensor& vectors, StringView rule) {
  const GradientRule chosen = checked_rule(grad_values, grad_vectors, values, vectors, rule);
  if (vectors.is_meta()) return empty_matrices(vectors);
  if (vectors.is_complex()) {
    const WithoutAutocast in_its_type;
    return gradient_rule_formula(chosen, values, vectors, or_undefined(grad_values),
                                 or_undefined(grad_vectors));
  }
  const Tensor l = in_compute_type(values).contiguous();
  const Tensor v = readable(in_compute_type(vectors));
  Tensor dL_dvalues = in_compute_type(or_undefined(grad_values));
  if (dL_dvalues.defined()) dL_dvalues = dL_dvalues.contiguous();
  Tensor dL_dvectors = in_compute_type(or_undefined(grad_vectors));
  if (dL_dvectors.defined()) dL_dvectors = readable(dL_dvectors);
  const Tensor dL_dmatrix = empty_matrices(v);
  AT_DISPATCH_FLOATING_TYPES(v.scalar_type(), kEighBackward, [&] {
    on_device_of(v, KEEL_STAGE(eigh_backward<scalar_t>), chosen, l.data_ptr<scalar_t>(),
                 matrices<const scalar_t>(v), data_or_null<const scalar_t>(dL_dvalues),
                 matrices<const scalar_t>(dL_dvectors), matrices<scalar_t>(dL_dmatrix));
  });
  return dL_dmatrix.to(vectors.scalar_type());
}

Tensor eigh_backward_autograd(const Optional<Tensor>& grad_values,
                              const Optional<Tensor>& grad_vectors, const Tensor& values,
                              const Tensor& vectors, StringView rule) {
  const Tensor dL_dvalues = or_undefined(grad_values), dL_dvectors = or_undefined(grad_vectors);
  if (!needs_graph({dL_dvalues, dL_dvectors, values, vectors}))
    return eigh_backward.below_autograd(grad_values, grad_vectors, values, vectors, rule);
  const GradientRule chosen = checked_rule(grad_values, grad_vectors, values, vectors, rule);
  const WithoutAutocast in_its_type;  // the rules' masks do not account for rounding to half
  return gradient_rule_formula(chosen, in_compute_type(values), in_compute_type(vectors),
                               in_compute_type(dL_dvalues), in_compute_type(dL_dvectors))
      .to(vectors.scalar_type());
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(keel, m) {
  m.def(
      "eigh_backward(Tensor? grad_values, Tensor? grad_vectors, Tensor values, Tensor vectors,"
      " str rule='masked') -> Tensor");
}
KEEL_OPERATOR("eigh_backward", &eigh_backward_kernel, &eigh_backward_autograd)

}  // namespace keel::ops
