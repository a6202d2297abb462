#include "activation_tensors.h"
#include "autograd.h"
#include "check.h"
#include "device.h"
#include "keel/moments.h"
#include "matrix_tensors.h"
#include "ops/operators.h"

namespace keel::ops {

std::tuple<Tensor, Tensor> cross_moments(const Tensor& left, const Tensor& right,
                                         const Optional<Tensor>& center, std::int64_t groups) {
  static const auto op = operator_named<decltype(cross_moments)>("keel::cross_moments");
  return op.call(left, right, center, groups);
}

namespace {

constexpr const char* kCrossMoments = "keel::cross_moments";

void check_cross_moments(const Tensor& left, const Tensor& right, const Optional<Tensor>& center,
                         std::int64_t groups) {
  check_activations(kCrossMoments, "left", left, groups);
  check_like(kCrossMoments, "right", right, left);
  check_channels(kCrossMoments, "center", or_undefined(center), left);
}

std::tuple<Tensor, Tensor> cross_moments_kernel(const Tensor& left, const Tensor& right,
                                                const Optional<Tensor>& center,
                                                std::int64_t groups) {
  check_cross_moments(left, right, center, groups);
  const Order order = order_of(right);
  const Tensor l = in_order(left, order), r = in_order(right, order);
  Tensor k = in_statistics_type(or_undefined(center), left);
  if (k.defined()) k = k.contiguous();
  const Tensor sum = empty_channels(left), cross = empty_group_matrices(left, groups);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, l.scalar_type(), kCrossMoments, [&] {
    using T = CoreType<scalar_t>;
    using A = Accumulator<T>;
    on_device_of(l, KEEL_TWINS(cross_moments<T>), activations<const T>(l, groups, order),
                 activations<const T>(r, groups, order), data_or_null<const A>(k),
                 sum.data_ptr<A>(), matrices<A>(cross));
  });
  return {sum, cross};
}

std::tuple<Tensor, Tensor> cross_moments_meta(const Tensor& left, const Tensor& right,
                                              const Optional<Tensor>& center, std::int64_t groups) {
  check_cross_moments(left, right, center, groups);
  return {empty_channels(left), empty_group_matrices(left, groups)};
}

/// Its way back is made of affine, whose way back is made of this: derivatives go to any order.
struct CrossMomentsNode : torch::autograd::Function<CrossMomentsNode> {
  static variable_list forward(AutogradContext* ctx, const Tensor& left, const Tensor& right,
                               const Optional<Tensor>& center, std::int64_t groups) {
    const BelowAutograd below_autograd;
    auto [sum, cross] = cross_moments(left, right, center, groups);
    ctx->set_materialize_grads(false);
    ctx->save_for_backward({left, right, or_undefined(center), sum});
    return {sum, cross};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    variable_list input_grads(4);
    if (!grads[0].defined() && !grads[1].defined()) return input_grads;
    const variable_list tensors = ctx->get_saved_variables();
    const Tensor &left = tensors[0], &right = tensors[1], &center = tensors[2], &sum = tensors[3];
    if (!grads[1].defined()) {
      auto shape = std::vector<std::int64_t>(std::size_t(left.dim()), 1);
      shape[1] = -1;
      input_grads[0] = grads[0].reshape(shape).expand_as(left).to(left.scalar_type());
      return input_grads;
    }
    input_grads[0] = affine(right, grads[1], if_defined(center), if_defined(grads[0]));
    input_grads[1] = affine(left, grads[1].mT(), {}, {});
    if (center.defined()) input_grads[2] = -transposed_times(grads[1], sum);
    return input_grads;
  }
};

std::tuple<Tensor, Tensor> cross_moments_autograd(const Tensor& left, const Tensor& right,
                                                  const Optional<Tensor>& center,
                                                  std::int64_t groups) {
  check_cross_moments(left, right, center, groups);
  const Tensor k = in_statistics_type(or_undefined(center), left);
  if (!needs_graph({left, right, k})) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    return cross_moments(left, right, center, groups);
  }
  const variable_list outputs = CrossMomentsNode::apply(left, right, if_defined(k), groups);
  return {outputs[0], outputs[1]};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(keel, m) {
  m.def(
      "cross_moments(Tensor left, Tensor right, Tensor? center=None, int groups=1)"
      " -> (Tensor sum, Tensor cross)");
}
KEEL_OPERATOR("cross_moments", &cross_moments_kernel, &cross_moments_meta, &cross_moments_autograd)

}  // namespace keel::ops
