// Cross moments of two sets of activations. The gradients of affine and of a whole layer start from them.

#include "activation_tensors.h"
#include "autograd.h"
#include "check.h"
#include "device.h"
#include "keel/moments.h"
#include "matrix_tensors.h"
#include "ops/operators.h"

namespace keel::ops {
namespace {

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

}  // namespace

TORCH_LIBRARY_FRAGMENT(keel, m) {
  m.def(
      "cross_moments(Tensor left, Tensor right, Tensor? center=None, int groups=1)"
      " -> (Tensor sum, Tensor cross)");
}
KEEL_OPERATOR("cross_moments", &cross_moments_kernel, &cross_moments_autograd)

}  // namespace keel::ops
