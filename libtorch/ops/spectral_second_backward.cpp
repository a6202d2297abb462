#include "autograd.h"
#include "check.h"
#include "device.h"
#include "keel/spectral.h"
#include "matrix_tensors.h"
#include "ops/operators.h"

namespace keel::ops {
namespace {

constexpr const char* kSecond = "keel::spectral_second_backward";

void check_spectral_second_backward(const Tensor& grad_grad_matrix, const Tensor& grad_result,
                                    const Tensor& matrix, const Tensor& values,
                                    const Tensor& vectors) {
  check_matrices(kSecond, vectors);
  check_like(kSecond, "grad_grad_matrix", grad_grad_matrix, vectors);
  check_like(kSecond, "grad_result", grad_result, vectors);
  check_like(kSecond, "matrix", matrix, vectors);
  check_values(kSecond, "values", values, vectors);
}

Tensors<2> spectral_second_backward_kernel(const Tensor& grad_grad_matrix,
                                           const Tensor& grad_result, const Tensor& matrix,
                                           const Tensor& values, const Tensor& vectors,
                                           StringView function) {
  check_spectral_second_backward(grad_grad_matrix, grad_result, matrix, values, vectors);
  const SpectralFunction f = parsed(spectral_function, kSecond, function);
  if (vectors.is_meta()) return {empty_matrices(vectors), empty_matrices(vectors)};
  const Tensor l = in_compute_type(values).contiguous();
  const Tensor v = readable(in_compute_type(vectors));
  const Tensor dL_dresult = readable(in_compute_type(grad_result));
  const Tensor dL2_ddL_dmatrix = readable(in_compute_type(grad_grad_matrix));
  const Tensor dL2_ddL_dresult = empty_matrices(v), dL2_dmatrix = empty_matrices(v);
  AT_DISPATCH_FLOATING_TYPES(v.scalar_type(), kSecond, [&] {
    on_device_of(v, KEEL_STAGE(spectral_second_backward<scalar_t>), f, l.data_ptr<scalar_t>(),
                 matrices<const scalar_t>(v), matrices<const scalar_t>(dL_dresult),
                 matrices<const scalar_t>(dL2_ddL_dmatrix), matrices<scalar_t>(dL2_ddL_dresult),
                 matrices<scalar_t>(dL2_dmatrix));
  });
  const auto type = vectors.scalar_type();
  return {dL2_ddL_dresult.to(type), dL2_dmatrix.to(type)};
}

Tensors<2> spectral_second_backward_autograd(const Tensor& grad_grad_matrix,
                                             const Tensor& grad_result, const Tensor& matrix,
                                             const Tensor& values, const Tensor& vectors,
                                             StringView function) {
  const auto results = spectral_second_backward.below_autograd(grad_grad_matrix, grad_result,
                                                               matrix, values, vectors, function);
  if (needs_graph({grad_grad_matrix, grad_result, matrix}))
    record_without_derivative(
        "keel::spectral: no third derivative of " + text(function) +
            " under rule exact; build the function from keel::eigh, whose rules differentiate "
            "to any order where no eigenvalues repeat",
        {grad_grad_matrix, grad_result, matrix}, to_list(results));
  return results;
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(keel, m) {
  m.def(
      "spectral_second_backward(Tensor grad_grad_matrix, Tensor grad_result, Tensor matrix,"
      " Tensor values, Tensor vectors, str function) -> (Tensor, Tensor)");
}
KEEL_OPERATOR("spectral_second_backward", &spectral_second_backward_kernel,
              &spectral_second_backward_autograd)

}  // namespace keel::ops
