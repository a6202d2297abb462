#include "modules/power_method_whiten.h"

#include <c10/core/impl/LocalDispatchKeySet.h>

#include "activations.h"
#include "autograd.h"
#include "check.h"
#include "keel/torch/affine.h"
#include "keel/torch/moments.h"
#include "modules/held.h"
#include "modules/sum_over.h"

namespace keel::nn {
namespace {

using ops::AutogradContext;
using ops::variable_list;
using torch::Tensor;

/// Which eigenvalues a policy keeps, given those (..., n) in the order found: booleans alike.
struct Kept {
  const Tensor& values;

  Tensor first(const Tensor& count) const {
    const auto places = torch::arange(values.size(-1), values.options().dtype(torch::kLong));
    return places < count.clamp_min(1).unsqueeze(-1);
  }
  /// Up to the first false.
  Tensor while_true(const Tensor& condition) const {
    return first(condition.to(torch::kLong).cumprod(-1).sum(-1));
  }
  /// Whether the energy of those before reaches less than `fraction` of the whole.
  Tensor energy_before_below(double fraction) const {
    const Tensor energy = values.clamp_min(0), total = energy.sum(-1, /*keepdim=*/true);
    return energy.cumsum(-1) - energy < fraction * total;
  }

  Tensor operator()(const FullRank&) const { return torch::ones_like(values, torch::kBool); }
  Tensor operator()(const LeadingCount& policy) const {
    return first(torch::full_like(values.select(-1, 0), double(policy.count), torch::kLong));
  }
  Tensor operator()(const LeadingEnergy& policy) const {
    return while_true(energy_before_below(policy.fraction));
  }
  Tensor operator()(const Algorithm1& policy) const {
    Tensor going = torch::ones_like(values, torch::kBool);
    if (policy.eps) going = going.logical_and(values > *policy.eps);
    if (policy.rayleigh_tolerance) {
      const Tensor before = torch::cat({values.narrow(-1, 0, 1), values}, -1);
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
    const Tensor safe = torch::where(kept, values, torch::ones_like(values));
    return safe.rsqrt() * kept.to(values.dtype());
  }
  Tensor operator()(const keel::Zca&) const {
    return (vectors * inverse_lengths().unsqueeze(-2)).matmul(vectors.mT());
  }
  Tensor operator()(const keel::PcaDenoising&) const {
    const Tensor mask = kept.to(values.dtype());
    return (vectors * mask.unsqueeze(-2)).matmul(vectors.mT()) * scale.unsqueeze(-2);
  }
  Tensor operator()(const keel::PcaWhitening&) const {
    return (vectors * inverse_lengths().unsqueeze(-2)).mT();
  }
};

/// The sum over all processes. Its gradient is the sum of theirs.
struct SumNode : torch::autograd::Function<SumNode> {
  static Tensor forward(AutogradContext* ctx, const Tensor& own, const ProcessGroup& processes) {
    ctx->saved_data["processes"] = hold(processes);
    Tensor total = own.detach().clone(at::MemoryFormat::Contiguous);
    sum_over(processes, total);
    return total;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto& processes = held<ProcessGroup>(ctx->saved_data["processes"]);
    return {SumNode::apply(grads[0], processes), Tensor()};
  }
};

std::tuple<Tensor, Tensor> moments_over(const ProcessGroup& processes, const Tensor& input,
                                        std::int64_t groups) {
  const std::int64_t samples = ops::samples_of(input);
  if (processes.size() == 1) {
    TORCH_CHECK_VALUE(samples > 1,
                      "keel::power_method: expected more than 1 value per channel when training, "
                      "got input size ",
                      ops::shape_of(input));
    const Moments found = moments(input, groups);
    return {found.mean, found.covariance};
  }
  // Without samples: zeros that hang on the input like any other, since all have to take part in backward.
  Moments own{input.transpose(0, 1).flatten(1).sum(1), {}};
  own.covariance = own.mean.new_zeros({groups, input.size(1) / groups, input.size(1) / groups});
  if (samples > 0) own = moments(input, groups);
  const auto type = ops::compute_type(input.scalar_type());
  const Tensor mean = own.mean.to(at::kDouble), one = torch::ones({1}, mean.options());
  const Tensor totals = SumNode::apply(torch::cat({one, mean}) * samples, processes),
               count = totals.narrow(0, 0, 1), middle = totals.narrow(0, 1, input.size(1)) / count;
  check_samples(processes, count);
  const Tensor off = (mean - middle).view({groups, -1, 1});
  const Tensor covariance = SumNode::apply((own.covariance + off * off.mT()) * samples, processes);
  return {middle.to(type), (covariance / count).to(type)};
}

}  // namespace

Whitened power_method_whiten(const Tensor& input, const Tensor& weight, const Tensor& bias,
                             std::int64_t groups, const SubspaceMap& map, const PowerMethod& method,
                             const ProcessGroup& processes) {
  // The d x d work stays in the statistics' type; autocast would take its products to half.
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const auto [mean, covariance] = moments_over(processes, input, groups);
  const Tensor variance = covariance.diagonal(0, -2, -1);
  const double eps = std::visit([](const auto& m) { return m.eps; }, map);
  const bool standardised = std::holds_alternative<keel::PcaDenoising>(map);
  const Tensor scale = standardised ? (variance + eps).rsqrt() : torch::ones_like(variance);
  const Tensor identity = torch::eye(covariance.size(-1), covariance.options());
  const Tensor m = covariance * scale.unsqueeze(-1) * scale.unsqueeze(-2) + eps * identity;
  const auto [values, vectors] = power_method(m, method);
  const RankPolicy policy = std::visit([](const auto& chosen) { return chosen.rank; }, map);
  const Tensor found = values.detach(), kept = std::visit(Kept{found}, policy);
  const Tensor subspace = std::visit(Assemble{values, vectors, kept, scale}, map);
  const Tensor matrix =
      weight.defined() ? subspace * weight.to(subspace.dtype()).reshape({groups, -1, 1}) : subspace;
  return {affine(input, matrix, mean, bias),
          mean.detach(),
          covariance.detach(),
          subspace.detach(),
          found,
          kept.sum(-1)};
}

}  // namespace keel::nn
