#include "keel/scale.h"

#include "activations.h"
#include "autograd.h"
#include "check.h"
#include "device.h"
#include "matrices.h"
#include "ops/calls.h"

namespace keel::ops {

using ScaleGradients = std::tuple<Tensor, Tensor, Tensor, Tensor>;

ScaleGradients scale_backward(const Optional<Tensor>& weight, const Tensor& subspace,
                              const Tensor& sum, const Tensor& cross) {
  static const auto op = operator_named<decltype(scale_backward)>("keel::scale_backward");
  return op.call(weight, subspace, sum, cross);
}

namespace {

constexpr const char* kScaleBackward = "keel::scale_backward";

void check_scale(const Optional<Tensor>& weight, const Tensor& subspace, const Tensor& sum,
                 const Tensor& cross) {
  check_matrices(kScaleBackward, subspace);
  check_like(kScaleBackward, "cross", cross, subspace);
  TORCH_CHECK(subspace.dim() == 3 && sum.dim() == 1 &&
                  sum.sym_size(0) == subspace.sym_size(0) * subspace.sym_size(1),
              kScaleBackward, ": expected subspace (G, d, d) and sum (G * d), got ",
              shape_of(subspace), " and ", shape_of(sum));
  check_statistics(kScaleBackward, "sum", sum, subspace);
  check_like(kScaleBackward, "weight", or_undefined(weight), sum);
}

Tensor empty_like_sum(const Tensor& sum) { return sum.new_empty_symint(sum.sym_sizes()); }

ScaleGradients scale_backward_kernel(const Optional<Tensor>& weight, const Tensor& subspace,
                                     const Tensor& sum, const Tensor& cross) {
  check_scale(weight, subspace, sum, cross);
  Tensor w = or_undefined(weight);
  if (w.defined()) w = w.contiguous();
  const Tensor s = readable(subspace), totals = sum.contiguous(), p = readable(cross);
  const Tensor dL_dweight = empty_like_sum(sum), dL_dmean = empty_like_sum(sum);
  const Tensor dL_dsubspace = empty_matrices(s), matrix = empty_matrices(s);
  AT_DISPATCH_FLOATING_TYPES(s.scalar_type(), kScaleBackward, [&] {
    on_device_of(s, KEEL_TWINS(scale_backward<scalar_t>), data_or_null<const scalar_t>(w),
                 matrices<const scalar_t>(s), totals.data_ptr<scalar_t>(),
                 matrices<const scalar_t>(p), dL_dweight.data_ptr<scalar_t>(),
                 dL_dmean.data_ptr<scalar_t>(), matrices<scalar_t>(dL_dsubspace),
                 matrices<scalar_t>(matrix));
  });
  return {dL_dweight, dL_dmean, dL_dsubspace, matrix};
}

ScaleGradients scale_backward_meta(const Optional<Tensor>& weight, const Tensor& subspace,
                                   const Tensor& sum, const Tensor& cross) {
  check_scale(weight, subspace, sum, cross);
  return {empty_like_sum(sum), empty_like_sum(sum), empty_matrices(subspace),
          empty_matrices(subspace)};
}

ScaleGradients scale_backward_autograd(const Optional<Tensor>& weight, const Tensor& subspace,
                                       const Tensor& sum, const Tensor& cross) {
  const auto compute = [&] {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    return scale_backward(weight, subspace, sum, cross);
  };
  if (!needs_graph({or_undefined(weight), subspace, sum, cross})) return compute();
  const variable_list out = WithoutDerivative::apply(
      std::string(kScaleBackward) + ": no derivative; compose torch's operators, which have one",
      std::function<variable_list()>([&] {
        auto [grad_weight, grad_mean, grad_subspace, matrix] = compute();
        return variable_list{grad_weight, grad_mean, grad_subspace, matrix};
      }),
      weight, subspace, sum, cross);
  return {out[0], out[1], out[2], out[3]};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(keel, m) {
  m.def(
      "scale_backward(Tensor? weight, Tensor subspace, Tensor sum, Tensor cross)"
      " -> (Tensor grad_weight, Tensor grad_mean, Tensor grad_subspace, Tensor matrix)");
}
TORCH_LIBRARY_IMPL(keel, CPU, m) { m.impl("scale_backward", &scale_backward_kernel); }
TORCH_LIBRARY_IMPL(keel, CUDA, m) { m.impl("scale_backward", &scale_backward_kernel); }
TORCH_LIBRARY_IMPL(keel, Meta, m) { m.impl("scale_backward", &scale_backward_meta); }
TORCH_LIBRARY_IMPL(keel, Autograd, m) { m.impl("scale_backward", &scale_backward_autograd); }

}  // namespace keel::ops
