#include "autograd.h"
#include "check.h"
#include "device.h"
#include "keel/subspace.h"
#include "matrices.h"
#include "ops/calls.h"

namespace keel::ops {

Tensor subspace_backward(const Tensor& grad_subspace, const Tensor& covariance,
                         const Tensor& values, const Tensor& vectors, const Tensor& rank,
                         StringView map, StringView rule) {
  static const auto op = operator_named<decltype(subspace_backward)>("keel::subspace_backward");
  return op.call(grad_subspace, covariance, values, vectors, rank, map, rule);
}

namespace {

constexpr const char* kSubspaceBackward = "keel::subspace_backward";

struct Chosen {
  SubspaceMap map;
  SpectralRule rule;
};

Chosen checked(const Tensor& grad_subspace, const Tensor& covariance, const Tensor& values,
               const Tensor& vectors, const Tensor& rank, StringView map, StringView rule) {
  check_matrices(kSubspaceBackward, covariance);
  check_like(kSubspaceBackward, "grad_subspace", grad_subspace, covariance);
  check_like(kSubspaceBackward, "vectors", vectors, covariance);
  check_values(kSubspaceBackward, "values", values, vectors);
  check_rank(kSubspaceBackward, rank, vectors);
  return {parsed(subspace_map, kSubspaceBackward, map),
          parsed(spectral_rule, kSubspaceBackward, rule)};
}

Tensor subspace_backward_kernel(const Tensor& grad_subspace, const Tensor& covariance,
                                const Tensor& values, const Tensor& vectors, const Tensor& rank,
                                StringView map, StringView rule) {
  const Chosen chosen = checked(grad_subspace, covariance, values, vectors, rank, map, rule);
  const Tensor dL_dsubspace = readable(in_compute_type(grad_subspace));
  const Tensor input = readable(in_compute_type(covariance));
  const Tensor l = in_compute_type(values).contiguous(), r = rank.contiguous();
  const Tensor v = readable(in_compute_type(vectors)), dL_dcovariance = empty_matrices(v);
  AT_DISPATCH_FLOATING_TYPES(v.scalar_type(), kSubspaceBackward, [&] {
    const SubspaceState<scalar_t> state{l.data_ptr<scalar_t>(), matrices<scalar_t>(v),
                                        r.data_ptr<std::int64_t>()};
    on_device_of(v, KEEL_TWINS(subspace_backward<scalar_t>), chosen.map, chosen.rule,
                 matrices<const scalar_t>(input), state, matrices<const scalar_t>(dL_dsubspace),
                 matrices<scalar_t>(dL_dcovariance));
  });
  return dL_dcovariance.to(covariance.scalar_type());
}

Tensor subspace_backward_meta(const Tensor& grad_subspace, const Tensor& covariance,
                              const Tensor& values, const Tensor& vectors, const Tensor& rank,
                              StringView map, StringView rule) {
  checked(grad_subspace, covariance, values, vectors, rank, map, rule);
  return empty_matrices(covariance);
}

Tensor subspace_backward_autograd(const Tensor& grad_subspace, const Tensor& covariance,
                                  const Tensor& values, const Tensor& vectors, const Tensor& rank,
                                  StringView map, StringView rule) {
  const auto compute = [&] {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    return subspace_backward(grad_subspace, covariance, values, vectors, rank, map, rule);
  };
  if (!needs_graph({grad_subspace, covariance})) return compute();
  return WithoutDerivative::apply(
      "keel::subspace: no second derivative of " + text(map) +
          "; build the map from keel::spectral or keel::eigh, which have one",
      std::function<variable_list()>([&] { return variable_list{compute()}; }), grad_subspace,
      covariance)[0];
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(keel, m) {
  m.def(
      "subspace_backward(Tensor grad_subspace, Tensor covariance, Tensor values, Tensor vectors,"
      " Tensor rank, str map, str rule='exact') -> Tensor");
}
TORCH_LIBRARY_IMPL(keel, CPU, m) { m.impl("subspace_backward", &subspace_backward_kernel); }
TORCH_LIBRARY_IMPL(keel, CUDA, m) { m.impl("subspace_backward", &subspace_backward_kernel); }
TORCH_LIBRARY_IMPL(keel, Meta, m) { m.impl("subspace_backward", &subspace_backward_meta); }
TORCH_LIBRARY_IMPL(keel, Autograd, m) { m.impl("subspace_backward", &subspace_backward_autograd); }

}  // namespace keel::ops
