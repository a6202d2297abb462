#include "keel/affine.h"

#include "activation_tensors.h"
#include "autograd.h"
#include "check.h"
#include "device.h"
#include "keel/torch/affine.h"
#include "matrix_tensors.h"
#include "ops/operators.h"

namespace keel::ops {
namespace {

constexpr const char* kAffine = "keel::affine";

void check_affine(const Tensor& input, const Tensor& matrix, const Optional<Tensor>& center,
                  const Optional<Tensor>& bias, const Optional<Tensor>& residual) {
  check_activations(kAffine, "input", input, /*groups=*/1);
  check_group_matrices(kAffine, "matrix", matrix, input);
  check_channels(kAffine, "center", or_undefined(center), input);
  check_channels(kAffine, "bias", or_undefined(bias), input);
  check_like(kAffine, "residual", or_undefined(residual), input);
}

Tensor affine_kernel(const Tensor& input, const Tensor& matrix, const Optional<Tensor>& center,
                     const Optional<Tensor>& bias, bool relu, const Optional<Tensor>& residual) {
  check_affine(input, matrix, center, bias, residual);
  const Order order = order_of(input);
  const Tensor output = empty_activations(input, order);
  if (input.is_meta()) return output;
  const std::int64_t groups = matrix.size(0);
  const Tensor x = in_order(input, order);
  const Tensor a = readable(in_statistics_type(matrix, input));
  const Tensor k = channel_statistics(center, input), b = channel_statistics(bias, input),
               r = in_order_if_any(residual, order);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), kAffine, [&] {
    using T = CoreType<scalar_t>;
    using A = Accumulator<T>;
    on_device_of(x, KEEL_STAGE(affine<T>), matrices<const A>(a), data_or_null<const A>(k),
                 data_or_null<const A>(b), activations<const T>(x, groups, order),
                 activations<T>(output, groups, order).plus(core_data<T>(r)).with_relu(relu));
  });
  return output;
}

/// Backward consists of differentiable operators (affine, cross_moments, ReLU's mask), so derivatives go to any order.
variable_list affine_backward(const GraphNode::Pass& pass, Order order, bool statistics,
                              bool has_bias) {
  const Tensor &input = pass.saved[0], &matrix = pass.saved[1], &center = pass.saved[2],
               &output = pass.saved[3];
  Tensor grad_output = in_order(pass.grads[0], order);
  if (output.defined()) grad_output = relu_mask(grad_output, output.detach());
  variable_list grads(5);
  if (pass.wanted(4)) grads[4] = grad_output;
  if (pass.wanted(0)) grads[0] = affine(grad_output, matrix.mT(), {}, {});
  if (!statistics) return grads;
  const std::int64_t groups = matrix.sym_size(0).guard_int(__FILE__, __LINE__);
  auto [sum, cross] = cross_moments(grad_output, input, if_defined(center), groups);
  grads[1] = cross;
  if (center.defined()) grads[2] = -transposed_times(matrix, sum);
  if (has_bias) grads[3] = sum;
  return grads;
}

/// matrix (input - center) + bias is linear in `matrix`, and jointly linear in the other arguments.
Tensor affine_tangent(const Tensor& input, const Tensor& matrix, const Tensor& center,
                      const Tensor& bias) {
  Tensor tangent;
  if (has_tangent(variable_list{input, center, bias})) {
    Tensor along = tangent_of(input);
    if (!along.defined()) along = at::zeros_like(primal_of(input));
    tangent = affine(along, primal_of(matrix), if_defined(tangent_of(center)),
                     if_defined(tangent_of(bias)));
  }
  if (const Tensor along = tangent_of(matrix); along.defined()) {
    tangent = plus(tangent, affine(primal_of(input), along, if_defined(primal_of(center)), {}));
  }
  return tangent;
}

Tensor affine_autograd(const Tensor& input, const Tensor& matrix, const Optional<Tensor>& center,
                       const Optional<Tensor>& bias, bool relu, const Optional<Tensor>& residual) {
  check_affine(input, matrix, center, bias, residual);
  // Convert outside the node, so that autograd returns each gradient in its argument's type.
  const Tensor a = in_statistics_type(matrix, input),
               k = in_statistics_type(or_undefined(center), input),
               b = in_statistics_type(or_undefined(bias), input);
  const Tensor r = or_undefined(residual);
  if ((relu || r.defined()) && has_tangent(variable_list{input, a, k, b, r}))
    return add_residual_and_relu(affine(input, a, if_defined(k), if_defined(b)), relu, r);
  const Tensor output =
      affine.below_autograd(input, a, if_defined(k), if_defined(b), relu, residual);
  if (!needs_graph({input, a, k, b, r})) return output;
  // With constant statistics (a frozen layer) nothing of the activations' size is saved.
  const bool statistics = needs_backward(variable_list{a, k, b});
  record({.name = kAffine,
          .inputs = {input, a, k, b, r},
          .outputs = {output},
          .saved = {statistics ? input : Tensor(), a, k, relu ? output : Tensor()},
          .backward =
              [order = order_of(input), statistics,
               has_bias = b.defined()](const GraphNode::Pass& pass) {
                return affine_backward(pass, order, statistics, has_bias);
              },
          .forward = [&] { return variable_list{affine_tangent(input, a, k, b)}; }});
  return output;
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(keel, m) {
  m.def(
      "affine(Tensor input, Tensor matrix, Tensor? center=None, Tensor? bias=None,"
      " bool relu=False, Tensor? residual=None) -> Tensor");
}
KEEL_OPERATOR("affine", &affine_kernel, &affine_autograd)

}  // namespace keel::ops

namespace keel {

torch::Tensor affine(const torch::Tensor& input, const torch::Tensor& matrix,
                     const torch::Tensor& center, const torch::Tensor& bias) {
  ops::check_activations("keel::affine", "input", input, /*groups=*/1);
  return ops::affine(input, matrix, ops::if_defined(center), ops::if_defined(bias));
}

}  // namespace keel
