#include "activations.h"
#include "autograd.h"
#include "check.h"
#include "device.h"
#include "keel/affine.h"
#include "matrices.h"
#include "ops/calls.h"

namespace keel::ops {

Tensor affine_backward(const Tensor& grad_output, const Tensor& matrix,
                       const Tensor& grad_covariance, const Tensor& grad_mean, const Tensor& input,
                       const Tensor& mean) {
  static const auto op = operator_named<decltype(affine_backward)>("keel::affine_backward");
  return op.call(grad_output, matrix, grad_covariance, grad_mean, input, mean);
}

namespace {

constexpr const char* kAffineBackward = "keel::affine_backward";

void check_affine_backward(const Tensor& grad_output, const Tensor& matrix,
                           const Tensor& grad_covariance, const Tensor& grad_mean,
                           const Tensor& input, const Tensor& mean) {
  check_activations(kAffineBackward, "input", input, /*groups=*/1);
  check_like(kAffineBackward, "grad_output", grad_output, input);
  check_group_matrices(kAffineBackward, "matrix", matrix, input);
  check_like(kAffineBackward, "grad_covariance", grad_covariance, matrix);
  check_channels(kAffineBackward, "grad_mean", grad_mean, input);
  check_channels(kAffineBackward, "mean", mean, input);
}

Tensor affine_backward_kernel(const Tensor& grad_output, const Tensor& matrix,
                              const Tensor& grad_covariance, const Tensor& grad_mean,
                              const Tensor& input, const Tensor& mean) {
  check_affine_backward(grad_output, matrix, grad_covariance, grad_mean, input, mean);
  const Order order = order_of(input);
  const std::int64_t groups = matrix.size(0);
  const Tensor x = in_order(input, order), dL_doutput = in_order(grad_output, order);
  const auto prepared = [&](const Tensor& t) { return in_statistics_type(t, input).contiguous(); };
  const Tensor a = prepared(matrix), dL_dcovariance = prepared(grad_covariance),
               dL_dmean = prepared(grad_mean), mu = prepared(mean);
  const Tensor dL_dinput = empty_activations(input, order);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), kAffineBackward, [&] {
    using T = CoreType<scalar_t>;
    using A = Accumulator<T>;
    on_device_of(x, KEEL_TWINS(affine_backward<T>), matrices<const A>(a),
                 activations<const T>(dL_doutput, groups, order), matrices<const A>(dL_dcovariance),
                 dL_dmean.data_ptr<A>(), activations<const T>(x, groups, order), mu.data_ptr<A>(),
                 activations<T>(dL_dinput, groups, order));
  });
  return dL_dinput;
}

Tensor affine_backward_meta(const Tensor& grad_output, const Tensor& matrix,
                            const Tensor& grad_covariance, const Tensor& grad_mean,
                            const Tensor& input, const Tensor& mean) {
  check_affine_backward(grad_output, matrix, grad_covariance, grad_mean, input, mean);
  return empty_activations(input, order_of(input));
}

Tensor affine_backward_autograd(const Tensor& grad_output, const Tensor& matrix,
                                const Tensor& grad_covariance, const Tensor& grad_mean,
                                const Tensor& input, const Tensor& mean) {
  const auto compute = [&] {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    return affine_backward(grad_output, matrix, grad_covariance, grad_mean, input, mean);
  };
  if (!needs_graph({grad_output, matrix, grad_covariance, grad_mean, input, mean}))
    return compute();
  return WithoutDerivative::apply(
      std::string(kAffineBackward) + ": no derivative; use keel::affine, whose own has one",
      std::function<variable_list()>([&] { return variable_list{compute()}; }), grad_output, matrix,
      grad_covariance, grad_mean, input, mean)[0];
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(keel, m) {
  m.def(
      "affine_backward(Tensor grad_output, Tensor matrix, Tensor grad_covariance,"
      " Tensor grad_mean, Tensor input, Tensor mean) -> Tensor");
}
TORCH_LIBRARY_IMPL(keel, CPU, m) { m.impl("affine_backward", &affine_backward_kernel); }
TORCH_LIBRARY_IMPL(keel, CUDA, m) { m.impl("affine_backward", &affine_backward_kernel); }
TORCH_LIBRARY_IMPL(keel, Meta, m) { m.impl("affine_backward", &affine_backward_meta); }
TORCH_LIBRARY_IMPL(keel, Autograd, m) { m.impl("affine_backward", &affine_backward_autograd); }

}  // namespace keel::ops
