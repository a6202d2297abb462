#include "keel/moments.h"

#include "activation_tensors.h"
#include "autograd.h"
#include "check.h"
#include "device.h"
#include "keel/torch/moments.h"
#include "matrix_tensors.h"
#include "ops/operators.h"

namespace keel::ops {
namespace {

constexpr const char* kMoments = "keel::moments";

Tensors<2> moments_kernel(const Tensor& input, std::int64_t groups) {
  check_activations(kMoments, "input", input, groups);
  const Tensor mean = empty_channels(input), covariance = empty_group_matrices(input, groups);
  if (input.is_meta()) return {mean, covariance};
  const Order order = order_of(input);
  const Tensor x = in_order(input, order);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), kMoments, [&] {
    using T = CoreType<scalar_t>;
    on_device_of(x, KEEL_STAGE(moments<T>), activations<const T>(x, groups, order),
                 mean.data_ptr<Accumulator<T>>(), matrices<Accumulator<T>>(covariance));
  });
  return {mean, covariance};
}

/// Backward is an affine map of the input, so derivatives go to any order.
Tensor moments_backward(const Tensor& dL_dmean, const Tensor& dL_dcovariance, const Tensor& input,
                        const Tensor& mean) {
  const double m = double(samples_of(input));
  const Tensor along_mean = dL_dmean.defined() ? dL_dmean / m : Tensor();
  if (dL_dcovariance.defined())
    return affine(input, (dL_dcovariance + dL_dcovariance.mT()) / m, mean, if_defined(along_mean));
  return expand_channels(input, along_mean);
}

Tensors<2> moments_autograd(const Tensor& input, std::int64_t groups) {
  check_activations(kMoments, "input", input, groups);
  const auto [mean, covariance] = moments.below_autograd(input, groups);
  if (needs_graph({input}))
    record({.name = kMoments,
            .inputs = {input},
            .outputs = {mean, covariance},
            .saved = {input, mean},
            .backward = [](const GraphNode::Pass& pass) -> variable_list {
              return {moments_backward(pass.grads[0], pass.grads[1], pass.saved[0], pass.saved[1])};
            },
            .forward = [&, mean = mean]() -> variable_list {
              const double m = double(samples_of(input));
              const auto [sum, cross] =
                  cross_moments(tangent_of(input), primal_of(input), mean, groups);
              return {sum / m, (cross + cross.mT()) / m};
            }});
  return {mean, covariance};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(keel, m) {
  m.def("moments(Tensor input, int groups=1) -> (Tensor mean, Tensor covariance)");
}
KEEL_OPERATOR("moments", &moments_kernel, &moments_autograd)

}  // namespace keel::ops

namespace keel {

Moments moments(const torch::Tensor& input, std::int64_t groups) {
  ops::check_activations("keel::moments", "input", input, groups);
  auto [mean, covariance] = ops::moments(input, groups);
  return {std::move(mean), std::move(covariance)};
}

}  // namespace keel
