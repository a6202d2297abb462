// keel::subspace with the power method's eigenvectors, differentiated by unrolling it: the baseline. Plain
// differentiable operations throughout.

#include <c10/core/impl/LocalDispatchKeySet.h>

#include "check.h"
#include "keel/subspace.h"
#include "keel/torch/nn/whitening.h"
#include "ops/calls.h"

namespace keel::ops {

std::tuple<Tensor, Tensor, Tensor> power_method_subspace(const Tensor& covariance, StringView map,
                                                         StringView rule) {
  static const auto op =
      operator_named<decltype(power_method_subspace)>("keel::power_method_subspace");
  return op.call(covariance, map, rule);
}

namespace {

constexpr const char* kPowerMethodSubspace = "keel::power_method_subspace";

/// Which eigenvalues a policy keeps, given those (..., n) in the order found: booleans alike.
struct Kept {
  const Tensor& values;

  Tensor first(const Tensor& count) const {
    const auto places = at::arange(values.size(-1), values.options().dtype(at::kLong));
    return places < count.clamp_min(1).unsqueeze(-1);
  }
  /// Up to the first false.
  Tensor while_true(const Tensor& condition) const {
    return first(condition.to(at::kLong).cumprod(-1).sum(-1));
  }
  /// Whether the energy of those before reaches less than `fraction` of the whole.
  Tensor energy_before_below(double fraction) const {
    const Tensor energy = values.clamp_min(0), total = energy.sum(-1, /*keepdim=*/true);
    return energy.cumsum(-1) - energy < fraction * total;
  }

  Tensor operator()(const FullRank&) const { return at::ones_like(values, at::kBool); }
  Tensor operator()(const LeadingCount& policy) const {
    return first(at::full_like(values.select(-1, 0), policy.count, at::kLong));
  }
  Tensor operator()(const LeadingEnergy& policy) const {
    return while_true(energy_before_below(policy.fraction));
  }
  Tensor operator()(const Algorithm1& policy) const {
    Tensor going = at::ones_like(values, at::kBool);
    if (policy.eps) going = going.logical_and(values > *policy.eps);
    if (policy.rayleigh_tolerance) {
      const Tensor before = at::cat({values.narrow(-1, 0, 1), values}, -1);
      going = going.logical_and(values <= before.narrow(-1, 0, values.size(-1)));
    }
    if (policy.energy) {
      const Tensor energy = values.clamp_min(0), total = energy.sum(-1, /*keepdim=*/true);
      going = going.logical_and(policy.keep_reaching ? energy_before_below(*policy.energy)
                                                     : energy.cumsum(-1) < *policy.energy * total);
    }
    return while_true(going);
  }
};

/// S from the eigenpairs (values, vectors) of M and the standardising factors `scale` (..., n).
struct Assemble {
  const Tensor &values, &vectors, &kept, &scale;

  /// 1 / sqrt(value) of those kept. A dropped value must not reach the root: behind the mask its
  /// gradient could still be NaN.
  Tensor inverse_lengths() const {
    const Tensor safe = at::where(kept, values, at::ones_like(values));
    return safe.rsqrt() * kept.to(values.dtype());
  }
  Tensor operator()(const Zca&) const {
    return (vectors * inverse_lengths().unsqueeze(-2)).matmul(vectors.mT());
  }
  Tensor operator()(const PcaDenoising&) const {
    const Tensor mask = kept.to(values.dtype());
    return (vectors * mask.unsqueeze(-2)).matmul(vectors.mT()) * scale.unsqueeze(-2);
  }
  Tensor operator()(const PcaWhitening&) const {
    return (vectors * inverse_lengths().unsqueeze(-2)).mT();
  }
};

std::tuple<Tensor, Tensor, Tensor> power_method_subspace_composite(const Tensor& covariance,
                                                                   StringView map,
                                                                   StringView rule) {
  check_matrices(kPowerMethodSubspace, covariance);
  const SubspaceMap chosen = parsed(subspace_map, kPowerMethodSubspace, map);
  const nn::LayerRule given = parsed(nn::layer_rule, kPowerMethodSubspace, rule);
  const auto* const method = std::get_if<PowerMethod>(&given);
  TORCH_CHECK_VALUE(method != nullptr, kPowerMethodSubspace, ": expected power_method, got ",
                    nn::to_string(given));
  // The d x d work stays in the statistics' type; autocast would take its products to half.
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const auto [eps, policy] =
      std::visit([](const auto& m) { return std::pair(m.eps, m.rank); }, chosen);
  const Tensor variance = covariance.diagonal(0, -2, -1);
  const bool standardised = std::holds_alternative<PcaDenoising>(chosen);
  const Tensor scale = standardised ? (variance + eps).rsqrt() : at::ones_like(variance);
  const Tensor identity = at::eye(covariance.size(-1), covariance.options());
  const Tensor m = covariance * scale.unsqueeze(-1) * scale.unsqueeze(-2) + eps * identity;
  const auto [values, vectors] = keel::power_method(m, *method);
  const Tensor found = values.detach(), kept = std::visit(Kept{found}, policy);
  return {std::visit(Assemble{values, vectors, kept, scale}, chosen), values, kept.sum(-1)};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(keel, m) {
  m.def(
      "power_method_subspace(Tensor covariance, str map, str rule='power_method')"
      " -> (Tensor subspace, Tensor values, Tensor rank)",
      &power_method_subspace_composite);
}

}  // namespace keel::ops
