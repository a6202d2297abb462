#include "keel/moments.h"

#include "activation_tensors.h"
#include "autograd.h"
#include "check.h"
#include "device.h"
#include "keel/torch/moments.h"
#include "matrix_tensors.h"
#include "ops/operators.h"

namespace keel::ops {

std::tuple<Tensor, Tensor> moments(const Tensor& input, std::int64_t groups) {
  static const auto op = operator_named<decltype(moments)>("keel::moments");
  return op.call(input, groups);
}

namespace {

constexpr const char* kMoments = "keel::moments";

std::tuple<Tensor, Tensor> moments_kernel(const Tensor& input, std::int64_t groups) {
  check_activations(kMoments, "input", input, groups);
  const Order order = order_of(input);
  const Tensor x = in_order(input, order);
  const Tensor mean = empty_channels(input), covariance = empty_group_matrices(input, groups);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), kMoments, [&] {
    using T = CoreType<scalar_t>;
    on_device_of(x, KEEL_TWINS(moments<T>), activations<const T>(x, groups, order),
                 mean.data_ptr<Accumulator<T>>(), matrices<Accumulator<T>>(covariance));
  });
  return {mean, covariance};
}

std::tuple<Tensor, Tensor> moments_meta(const Tensor& input, std::int64_t groups) {
  check_activations(kMoments, "input", input, groups);
  return {empty_channels(input), empty_group_matrices(input, groups)};
}

/// The way back is an affine map of the input, so derivatives go to any order.
struct MomentsNode : torch::autograd::Function<MomentsNode> {
  static variable_list forward(AutogradContext* ctx, const Tensor& input, std::int64_t groups) {
    const BelowAutograd below_autograd;
    auto [mean, covariance] = moments(input, groups);
    ctx->set_materialize_grads(false);
    ctx->save_for_backward({input, mean});
    return {mean, covariance};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    if (!grads[0].defined() && !grads[1].defined()) return {Tensor(), Tensor()};
    const variable_list tensors = ctx->get_saved_variables();
    const Tensor &input = tensors[0], &mean = tensors[1];
    const double m = double(samples_of(input));
    const Tensor along_mean = grads[0].defined() ? grads[0] / m : Tensor();
    if (grads[1].defined())
      return {affine(input, (grads[1] + grads[1].mT()) / m, mean, if_defined(along_mean)),
              Tensor()};
    auto shape = std::vector<std::int64_t>(std::size_t(input.dim()), 1);
    shape[1] = -1;
    return {along_mean.reshape(shape).expand_as(input).to(input.scalar_type()), Tensor()};
  }
};

std::tuple<Tensor, Tensor> moments_autograd(const Tensor& input, std::int64_t groups) {
  check_activations(kMoments, "input", input, groups);
  if (!needs_graph({input})) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    return moments(input, groups);
  }
  const variable_list outputs = MomentsNode::apply(input, groups);
  return {outputs[0], outputs[1]};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(keel, m) {
  m.def("moments(Tensor input, int groups=1) -> (Tensor mean, Tensor covariance)");
}
KEEL_OPERATOR("moments", &moments_kernel, &moments_meta, &moments_autograd)

}  // namespace keel::ops

namespace keel {

Moments moments(const torch::Tensor& input, std::int64_t groups) {
  ops::check_activations("keel::moments", "input", input, groups);
  auto [mean, covariance] = ops::moments(input, groups);
  return {std::move(mean), std::move(covariance)};
}

}  // namespace keel
