#include "keel/affine.h"

#include "activation_tensors.h"
#include "autograd.h"
#include "check.h"
#include "device.h"
#include "keel/torch/affine.h"
#include "matrix_tensors.h"
#include "ops/operators.h"

namespace keel::ops {

Tensor affine(const Tensor& input, const Tensor& matrix, const Optional<Tensor>& center,
              const Optional<Tensor>& bias) {
  static const auto op = operator_named<decltype(affine)>("keel::affine");
  return op.call(input, matrix, center, bias);
}

namespace {

constexpr const char* kAffine = "keel::affine";

void check_affine(const Tensor& input, const Tensor& matrix, const Optional<Tensor>& center,
                  const Optional<Tensor>& bias) {
  check_activations(kAffine, "input", input, /*groups=*/1);
  check_group_matrices(kAffine, "matrix", matrix, input);
  check_channels(kAffine, "center", or_undefined(center), input);
  check_channels(kAffine, "bias", or_undefined(bias), input);
}

Tensor affine_kernel(const Tensor& input, const Tensor& matrix, const Optional<Tensor>& center,
                     const Optional<Tensor>& bias) {
  check_affine(input, matrix, center, bias);
  const Order order = order_of(input);
  const std::int64_t groups = matrix.size(0);
  const Tensor x = in_order(input, order), output = empty_activations(input, order);
  const Tensor a = readable(in_statistics_type(matrix, input));
  const auto prepared = [&](const Optional<Tensor>& numbers) {
    const Tensor given = in_statistics_type(or_undefined(numbers), input);
    return given.defined() ? given.contiguous() : given;
  };
  const Tensor k = prepared(center), b = prepared(bias);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), kAffine, [&] {
    using T = CoreType<scalar_t>;
    using A = Accumulator<T>;
    on_device_of(x, KEEL_TWINS(affine<T>), matrices<const A>(a), data_or_null<const A>(k),
                 data_or_null<const A>(b), activations<const T>(x, groups, order),
                 activations<T>(output, groups, order));
  });
  return output;
}

Tensor affine_meta(const Tensor& input, const Tensor& matrix, const Optional<Tensor>& center,
                   const Optional<Tensor>& bias) {
  check_affine(input, matrix, center, bias);
  return empty_activations(input, order_of(input));
}

/// Its way back is made of affine itself and cross_moments: derivatives go to any order.
struct AffineNode : torch::autograd::Function<AffineNode> {
  static Tensor forward(AutogradContext* ctx, const Tensor& input, const Tensor& matrix,
                        const Optional<Tensor>& center, const Optional<Tensor>& bias) {
    const BelowAutograd below_autograd;
    ctx->set_materialize_grads(false);
    const auto wanted = [](const Tensor& x) { return x.defined() && x.requires_grad(); };
    const Tensor k = or_undefined(center), b = or_undefined(bias);
    const bool statistics = wanted(matrix) || wanted(k) || wanted(b);
    ctx->saved_data["statistics"] = statistics;
    ctx->saved_data["has_bias"] = b.defined();
    ctx->saved_data["channels_last"] = order_of(input) == Order::channels_last;
    // With constant statistics (a frozen layer) nothing of the activations' size is kept.
    ctx->save_for_backward({statistics ? input : Tensor(), matrix, k});
    return affine(input, matrix, center, bias);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    variable_list input_grads(4);
    if (!grads[0].defined()) return input_grads;
    const variable_list tensors = ctx->get_saved_variables();
    const Tensor &input = tensors[0], &matrix = tensors[1], &center = tensors[2];
    const Tensor grad_output =
        in_order(grads[0], ctx->saved_data["channels_last"].toBool() ? Order::channels_last
                                                                     : Order::contiguous);
    if (ctx->needs_input_grad(0)) input_grads[0] = affine(grad_output, matrix.mT(), {}, {});
    if (!ctx->saved_data["statistics"].toBool()) return input_grads;
    const std::int64_t groups = matrix.sym_size(0).guard_int(__FILE__, __LINE__);
    auto [sum, cross] = cross_moments(grad_output, input, if_defined(center), groups);
    input_grads[1] = cross;
    if (center.defined()) input_grads[2] = -transposed_times(matrix, sum);
    if (ctx->saved_data["has_bias"].toBool()) input_grads[3] = sum;
    return input_grads;
  }
};

Tensor affine_autograd(const Tensor& input, const Tensor& matrix, const Optional<Tensor>& center,
                       const Optional<Tensor>& bias) {
  check_affine(input, matrix, center, bias);
  // Converting outside the node lets each gradient come back in its own type.
  const Tensor a = in_statistics_type(matrix, input),
               k = in_statistics_type(or_undefined(center), input),
               b = in_statistics_type(or_undefined(bias), input);
  if (!needs_graph({input, a, k, b})) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    return affine(input, a, if_defined(k), if_defined(b));
  }
  return AffineNode::apply(input, a, if_defined(k), if_defined(b));
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(keel, m) {
  m.def("affine(Tensor input, Tensor matrix, Tensor? center=None, Tensor? bias=None) -> Tensor");
}
KEEL_OPERATOR("affine", &affine_kernel, &affine_meta, &affine_autograd)

}  // namespace keel::ops

namespace keel {

torch::Tensor affine(const torch::Tensor& input, const torch::Tensor& matrix,
                     const torch::Tensor& center, const torch::Tensor& bias) {
  ops::check_activations("keel::affine", "input", input, /*groups=*/1);
  return ops::affine(input, matrix, ops::if_defined(center), ops::if_defined(bias));
}

}  // namespace keel
