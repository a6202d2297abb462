#include "keel/subspace.h"

#include "autograd.h"
#include "check.h"
#include "device.h"
#include "keel/torch/subspace.h"
#include "matrices.h"
#include "ops/calls.h"

namespace keel::ops {

using SubspaceTensors = std::tuple<Tensor, Tensor, Tensor, Tensor>;

SubspaceTensors subspace(const Tensor& covariance, StringView map, StringView rule) {
  static const auto op = operator_named<decltype(subspace)>("keel::subspace");
  return op.call(covariance, map, rule);
}

namespace {

constexpr const char* kSubspace = "keel::subspace";

SubspaceTensors subspace_kernel(const Tensor& covariance, StringView map, StringView rule) {
  check_matrices(kSubspace, covariance);
  const SubspaceMap chosen = parsed(subspace_map, kSubspace, map);
  parsed(spectral_rule, kSubspace, rule);  // a bad rule is an error now
  const auto type = covariance.scalar_type();
  const Tensor input = readable(in_compute_type(covariance));
  const Tensor result = empty_matrices(input), values = empty_values(input);
  const Tensor vectors = empty_matrices(input), found = empty_rank(input);
  AT_DISPATCH_FLOATING_TYPES(input.scalar_type(), kSubspace, [&] {
    const SubspaceState<scalar_t> state{values.data_ptr<scalar_t>(), matrices<scalar_t>(vectors),
                                        found.data_ptr<std::int64_t>()};
    on_device_of(input, KEEL_TWINS(subspace<scalar_t>), chosen, matrices<const scalar_t>(input),
                 matrices<scalar_t>(result), state);
  });
  return {result.to(type), values.to(type), vectors.to(type), found};
}

SubspaceTensors subspace_meta(const Tensor& covariance, StringView map, StringView rule) {
  check_matrices(kSubspace, covariance);
  parsed(subspace_map, kSubspace, map);
  parsed(spectral_rule, kSubspace, rule);
  return {empty_matrices(covariance), empty_values(covariance), empty_matrices(covariance),
          empty_rank(covariance)};
}

struct SubspaceNode : torch::autograd::Function<SubspaceNode> {
  static variable_list forward(AutogradContext* ctx, const Tensor& covariance,
                               const std::string& map, const std::string& rule) {
    const BelowAutograd below_autograd;
    auto [result, values, vectors, found] = subspace(covariance, map, rule);
    ctx->set_materialize_grads(false);
    ctx->mark_non_differentiable({values, vectors, found});
    ctx->saved_data["map"] = map;
    ctx->saved_data["rule"] = rule;
    ctx->save_for_backward({covariance, values, vectors, found});
    return {result, values, vectors, found};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    variable_list input_grads(3);
    if (!grads[0].defined()) return input_grads;
    const variable_list tensors = ctx->get_saved_variables();
    auto& data = ctx->saved_data;
    input_grads[0] = subspace_backward(grads[0], tensors[0], tensors[1], tensors[2], tensors[3],
                                       data["map"].toStringRef(), data["rule"].toStringRef());
    return input_grads;
  }
};

SubspaceTensors subspace_autograd(const Tensor& covariance, StringView map, StringView rule) {
  check_matrices(kSubspace, covariance);
  if (!needs_graph({covariance})) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    return subspace(covariance, map, rule);
  }
  const variable_list outputs =
      SubspaceNode::apply(in_compute_type(covariance), text(map), text(rule));
  const auto type = covariance.scalar_type();
  return {outputs[0].to(type), outputs[1].to(type), outputs[2].to(type), outputs[3]};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(keel, m) {
  m.def(
      "subspace(Tensor covariance, str map, str rule='exact')"
      " -> (Tensor subspace, Tensor values, Tensor vectors, Tensor rank)");
}
TORCH_LIBRARY_IMPL(keel, CPU, m) { m.impl("subspace", &subspace_kernel); }
TORCH_LIBRARY_IMPL(keel, CUDA, m) { m.impl("subspace", &subspace_kernel); }
TORCH_LIBRARY_IMPL(keel, Meta, m) { m.impl("subspace", &subspace_meta); }
TORCH_LIBRARY_IMPL(keel, Autograd, m) { m.impl("subspace", &subspace_autograd); }

}  // namespace keel::ops

namespace keel {

Subspace subspace(const torch::Tensor& covariance, const SubspaceMap& map,
                  const SpectralRule& rule) {
  ops::check_matrices("keel::subspace", covariance);
  auto [result, values, vectors, rank] = ops::subspace(covariance, to_string(map), to_string(rule));
  return {std::move(result), std::move(values), std::move(vectors), std::move(rank)};
}

}  // namespace keel
