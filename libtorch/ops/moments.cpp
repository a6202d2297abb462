// Moments of activations. Cross moments of two sets of them, from which the gradients of affine and of a whole layer start.
// Sums that processes add up to get the moments of all their samples.

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

constexpr const char* kCrossMoments = "keel::cross_moments";

void check_cross_moments(const Tensor& left, const Tensor& right, const Optional<Tensor>& center,
                         std::int64_t groups) {
  check_activations(kCrossMoments, "left", left, groups);
  check_like(kCrossMoments, "right", right, left);
  check_channels(kCrossMoments, "center", or_undefined(center), left);
}

Tensors<2> cross_moments_kernel(const Tensor& left, const Tensor& right,
                                const Optional<Tensor>& center, std::int64_t groups) {
  check_cross_moments(left, right, center, groups);
  const Tensor sum = empty_channels(left), cross = empty_group_matrices(left, groups);
  if (left.is_meta()) return {sum, cross};
  const Order order = order_of(right);
  const Tensor l = in_order(left, order), r = in_order(right, order);
  const Tensor k = channel_statistics(center, left);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, l.scalar_type(), kCrossMoments, [&] {
    using T = CoreType<scalar_t>;
    using A = Accumulator<T>;
    on_device_of(l, KEEL_STAGE(cross_moments<T>), activations<const T>(l, groups, order),
                 activations<const T>(r, groups, order), data_or_null<const A>(k),
                 sum.data_ptr<A>(), matrices<A>(cross));
  });
  return {sum, cross};
}

/// Backward consists of affine, whose backward uses cross_moments, so derivatives go to any order.
variable_list cross_moments_backward(const GraphNode::Pass& pass) {
  const Tensor &dL_dsum = pass.grads[0], &dL_dcross = pass.grads[1];
  const Tensor &left = pass.saved[0], &right = pass.saved[1], &center = pass.saved[2],
               &sum = pass.saved[3];
  if (!dL_dcross.defined()) return {expand_channels(left, dL_dsum), Tensor(), Tensor()};
  return {affine(right, dL_dcross, if_defined(center), if_defined(dL_dsum)),
          affine(left, dL_dcross.mT(), {}, {}),
          center.defined() ? -transposed_times(dL_dcross, sum) : Tensor()};
}

/// sum left (right - center)^T is linear in `left`, and jointly linear in `right` and `center`.
variable_list cross_moments_tangents(const Tensor& left, const Tensor& right, const Tensor& center,
                                     std::int64_t groups) {
  Tensor sum, cross;
  if (const Tensor along = tangent_of(left); along.defined())
    std::tie(sum, cross) =
        cross_moments(along, primal_of(right), if_defined(primal_of(center)), groups);
  Tensor along = tangent_of(right);
  const Tensor about = tangent_of(center);
  if (!along.defined() && about.defined()) along = at::zeros_like(left);
  if (along.defined())
    cross =
        plus(cross, std::get<1>(cross_moments(primal_of(left), along, if_defined(about), groups)));
  return {sum, cross};
}

Tensors<2> cross_moments_autograd(const Tensor& left, const Tensor& right,
                                  const Optional<Tensor>& center, std::int64_t groups) {
  check_cross_moments(left, right, center, groups);
  const Tensor k = in_statistics_type(or_undefined(center), left);
  const auto [sum, cross] = cross_moments.below_autograd(left, right, if_defined(k), groups);
  if (needs_graph({left, right, k}))
    record({.name = kCrossMoments,
            .inputs = {left, right, k},
            .outputs = {sum, cross},
            .saved = {left, right, k, sum},
            .backward = cross_moments_backward,
            .forward = [&] { return cross_moments_tangents(left, right, k, groups); }});
  return {sum, cross};
}

constexpr const char* kPartial = "keel::partial_moments";
constexpr char kNotThroughSums[] =
    "keel::partial_moments: no derivative; use keel::moments, which has one";

Tensor partial_moments_kernel(const Tensor& input, std::int64_t groups,
                              const Optional<Tensor>& shift) {
  check_activations(kPartial, "input", input, groups);
  check_channels(kPartial, "shift", or_undefined(shift), input);
  const auto channels = input.sym_size(1);
  const Tensor result =
      input.new_empty_symint({channels * (channels / groups) + channels + c10::SymInt(1)},
                             input.options().dtype(at::kDouble));
  if (input.is_meta()) return result;
  if (input.size(1) == 0) return result.fill_(double(samples_of(input)));
  const Order order = order_of(input);
  const Tensor x = in_order(input, order), about = as_shift(shift);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), kPartial, [&] {
    using T = CoreType<scalar_t>;
    on_device_of(x, KEEL_STAGE(partial_moments<T>), activations<const T>(x, groups, order),
                 data_or_null<const double>(about), result.data_ptr<double>());
  });
  return result;
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(keel, m) {
  m.def("moments(Tensor input, int groups=1) -> (Tensor mean, Tensor covariance)");
  m.def(
      "cross_moments(Tensor left, Tensor right, Tensor? center=None, int groups=1)"
      " -> (Tensor sum, Tensor cross)");
  m.def("partial_moments(Tensor input, int groups=1, Tensor? shift=None) -> Tensor");
}
KEEL_OPERATOR("moments", &moments_kernel, &moments_autograd)
KEEL_OPERATOR("cross_moments", &cross_moments_kernel, &cross_moments_autograd)
KEEL_OPERATOR("partial_moments", &partial_moments_kernel,
              without_derivative<partial_moments, kNotThroughSums>)

}  // namespace keel::ops

namespace keel {

Moments moments(const torch::Tensor& input, std::int64_t groups) {
  ops::check_activations("keel::moments", "input", input, groups);
  auto [mean, covariance] = ops::moments(input, groups);
  return {std::move(mean), std::move(covariance)};
}

}  // namespace keel
