#include "lab/models/baseline_norm.h"

#include <limits>

#include "keel/torch/affine.h"
#include "keel/torch/moments.h"

namespace keel::lab {
namespace {

using keel::nn::ProcessGroup;
using torch::Tensor;

/// Which eigenvalues a policy keeps. Takes the values (..., n) in the order found, returns booleans of that shape.
struct Kept {
  const Tensor& values;

  double epsilon() const {
    return values.scalar_type() == at::kDouble ? std::numeric_limits<double>::epsilon()
                                               : double(std::numeric_limits<float>::epsilon());
  }
  Tensor first(const Tensor& count) const {
    const auto places = at::arange(values.size(-1), values.options().dtype(at::kLong));
    return places < count.clamp_min(1).unsqueeze(-1);
  }
  /// True before the first false, and always for the first value.
  Tensor while_true(const Tensor& condition) const {
    return first(condition.to(at::kLong).cumprod(-1).sum(-1));
  }
  /// Whether the preceding values have less than `fraction` of the total energy.
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
    if (policy.eps && !policy.literal) {
      // The margin of the library (core/eigenvalue_noise.h). The energy's is left out: these values are not so exact.
      const double noise = 10 * double(values.size(-1)) * epsilon();
      going = going.logical_and(values - *policy.eps > noise * values.abs().amax(-1, true));
    }
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

/// Computes S from the eigenpairs (values, vectors) of M and the standardising factors `scale` (..., n).
struct Assemble {
  const Tensor &values, &vectors, &kept, &scale;

  /// 1 / sqrt(value) of the kept values. Dropped values are replaced before the root, because the root's gradient
  /// could be NaN even behind a mask.
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

/// The eigenpairs of a baseline.
struct Decompose {
  const Tensor& m;
  double eps;
  const RankPolicy& policy;

  Tensor chosen(const Tensor& values) const { return std::visit(Kept{values}, policy); }
  Eigenpairs operator()(const PowerMethod& method) const {
    const auto [values, vectors] = power_method(m, method);
    return {values, vectors, chosen(values.detach())};
  }
  Eigenpairs operator()(const Textbook&) const {
    return textbook(m, [this](const Tensor& values) { return chosen(values); });
  }
  Eigenpairs operator()(const ReleasedTextbook& method) const {
    return released_textbook(m, eps, method);
  }
  Eigenpairs operator()(const ReleasedPowerIteration& method) const {
    return released_power_iteration(m, eps, method);
  }
  Eigenpairs operator()(const NewtonSchulz&) const { return {}; }  // it finds the matrix itself
};

struct Matrix {
  Tensor layer_matrix, values, rank;
};

/// The d x d matrix of a layer, in the statistics' type. Autocast would compute the products in half precision.
Matrix matrix_of(const Tensor& covariance, const LayerMap& map, const Baseline& method) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const auto [eps, policy] =
      std::visit([](const auto& m) { return std::pair(m.eps, m.rank); }, map);
  const Tensor variance = covariance.diagonal(0, -2, -1);
  const bool standardised = std::holds_alternative<PcaDenoising>(map);
  const Tensor scale = standardised ? (variance + eps).rsqrt() : at::ones_like(variance);
  const Tensor identity = at::eye(covariance.size(-1), covariance.options());
  const Tensor m = covariance * scale.unsqueeze(-1) * scale.unsqueeze(-2) + eps * identity;
  if (const auto* steps = std::get_if<NewtonSchulz>(&method))
    return {newton_schulz(m, *steps), {}, {}};
  const auto [values, vectors, kept] = std::visit(Decompose{m, eps, policy}, method);
  return {std::visit(Assemble{values, vectors, kept, scale}, map), values, kept.sum(-1)};
}

}  // namespace

BaselineNormImpl::BaselineNormImpl(const keel::nn::WhiteningOptions& given, const LayerMap& map,
                                   const Baseline& method)
    : WhiteningImpl("keel::lab::BaselineNorm", given, map), map_(map), method_(method) {
  std::visit([](const auto& one) { term::check(one.kName, one); }, method);
}

Whitened BaselineNormImpl::batch_step(const Tensor& input, const Tensor& residual,
                                      keel::nn::Activation activation,
                                      const ProcessGroup& processes) const {
  const std::int64_t groups = *options.groups, samples = input.numel() / input.size(1);
  TORCH_CHECK_VALUE(samples > 1, name(),
                    ": expected more than 1 value per channel when training, got input size ",
                    input.sizes());
  TORCH_CHECK_VALUE(processes.size() == 1, name(), ": expected one process, got ",
                    processes.size());
  const auto [mean, covariance] = moments(input, groups);
  const auto [layer_matrix, values, rank] = matrix_of(covariance, map_, method_);
  const Tensor matrix =
      weight.defined() ? layer_matrix * weight.to(layer_matrix.dtype()).reshape({groups, -1, 1})
                       : layer_matrix;
  Tensor output = affine(input, matrix, mean, bias);
  if (residual.defined()) output = output + residual;
  if (activation != keel::nn::Activation::none) output = output.relu();
  return {output,
          mean.detach(),
          covariance.detach(),
          layer_matrix.detach(),
          values.defined() ? values.detach() : values,
          rank};
}

void BaselineNormImpl::pretty_print(std::ostream& stream) const {
  stream << name() << "(" << options.num_features << ", group_size=" << *options.group_size
         << ", map=" << to_string(map_) << ", method=" << term::written(method_) << ")";
}

}  // namespace keel::lab
