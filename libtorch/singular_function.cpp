#include "singular_function.h"

#include <algorithm>
#include <cmath>

#include "gradient_rule_formula.h"
#include "singular_formula.h"

namespace keel {

std::string to_string(const SingularFunction& function) { return term::written(function); }

SingularFunction singular_function(std::string_view text, std::string_view operation) {
  return term::read<SingularFunction>(operation, text);
}

}  // namespace keel

namespace keel::ops {
namespace {

/// Pairs of kept values, the larger first. Entries of other pairs are ignored.
struct ValuePairs {
  Tensor high, low, noise;

  Tensor sum() const { return high + low; }
};

Tensor value_of(const UnitValues&, const Tensor& s) { return at::ones_like(s); }
Tensor value_of(const SameValues&, const Tensor& s) { return s; }
Tensor value_of(const InverseValues&, const Tensor& s) { return s.reciprocal(); }
Tensor value_of(const PowerOfValues& f, const Tensor& s) {
  const Tensor power = s.pow(f.exponent);
  return f.exponent < 0 ? at::where(s == 0, at::full_like(s, NAN), power) : power;
}
Tensor value_of(const SoftThreshold& f, const Tensor& s) { return (s - f.threshold).clamp_min(0); }

Tensor together_of(const UnitValues&, const ValuePairs& pairs) {
  return at::zeros_like(pairs.high);
}
Tensor against_of(const UnitValues&, const ValuePairs& pairs) {
  const Tensor sum = pairs.sum();
  return divide_where(sum > pairs.noise, at::full_like(sum, 2), sum);
}

Tensor together_of(const SameValues&, const ValuePairs& pairs) { return at::ones_like(pairs.high); }
Tensor against_of(const SameValues&, const ValuePairs& pairs) { return at::ones_like(pairs.high); }

Tensor against_of(const InverseValues&, const ValuePairs& pairs) {
  return pairs.high.reciprocal() * pairs.low.reciprocal();
}
Tensor together_of(const InverseValues& f, const ValuePairs& pairs) {
  return -against_of(f, pairs);
}

/// With q = low / high and a = |p|, the quotients are z^p / high (1 -+ q^a) / (1 -+ q), where z is the value with the
/// larger power. z^p / high is multiplied in an order that stays in range whenever the result does.
struct PowerPairs {
  Tensor scale, ratio_power, less;  ///< z^p / high, 1 - q^a, 1 - q

  PowerPairs(const PowerOfValues& f, const ValuePairs& pairs) {
    const Tensor& lead = f.exponent > 0 ? pairs.high : pairs.low;
    const Tensor root = lead.pow(f.exponent / 2);
    scale = root / pairs.high * root;
    less = (pairs.high - pairs.low) / pairs.high;
    const Tensor log_ratio =
        at::where(less <= 0.5, (-less).log1p(), (pairs.low / pairs.high).log());
    ratio_power = -(std::abs(f.exponent) * log_ratio).expm1();
  }
};
/// Whether f jumps at zero or has an infinite slope there. Quotients by values within rounding of zero are then left out.
template <typename Function>
bool ends_at_zero(const Function&) {
  return std::is_same_v<Function, UnitValues>;
}
bool ends_at_zero(const PowerOfValues& f) { return f.exponent > 0 && f.exponent < 1; }

/// The same function by its simplest name. With it the quotients need no exceptions at zero.
SingularFunction simplest(const SingularFunction& function) {
  const auto* power = std::get_if<PowerOfValues>(&function);
  const auto* soft = std::get_if<SoftThreshold>(&function);
  if (power && power->exponent == 0) return UnitValues{};
  if ((power && power->exponent == 1) || (soft && soft->threshold == 0)) return SameValues{};
  return function;
}

/// The limit at two zeros, which is 0 for powers above 1. Roots, whose slope is infinite, get 0 too.
Tensor unless_zero(const PowerOfValues& f, const Tensor& quotient, const ValuePairs& pairs) {
  if (f.exponent < 0) return quotient;
  const Tensor limit = ends_at_zero(f) ? pairs.sum() <= pairs.noise : pairs.high == 0;
  return at::where(limit, at::zeros_like(quotient), quotient);
}
Tensor together_of(const PowerOfValues& f, const ValuePairs& pairs) {
  const PowerPairs power(f, pairs);
  const double a = std::abs(f.exponent);
  const Tensor ratio =
      at::where(power.less == 0, at::full_like(power.less, a), power.ratio_power / power.less);
  return unless_zero(f, (f.exponent < 0 ? -power.scale : power.scale) * ratio, pairs);
}
Tensor against_of(const PowerOfValues& f, const ValuePairs& pairs) {
  const PowerPairs power(f, pairs);
  return unless_zero(f, power.scale * ((2 - power.ratio_power) / (2 - power.less)), pairs);
}

Tensor together_of(const SoftThreshold& f, const ValuePairs& pairs) {
  const Tensor above = (pairs.high - f.threshold).clamp_min(0);
  const Tensor below = (f.threshold - pairs.low).clamp_min(0);
  return divide_where(above > 0, above, above + below);
}
Tensor against_of(const SoftThreshold& f, const ValuePairs& pairs) {
  const Tensor above = value_of(f, pairs.high) + value_of(f, pairs.low);
  return divide_where(above > 0, above, pairs.sum());
}

/// The factors of kept pairs as they are, those across the cut, and zero for the others. `share` is the part of the noise
/// within which a sum or a value counts as zero.
SingularKernels with_cut(const SingularKernels& inside, const Tensor& f, const Tensor& values,
                         const Tensor& kept, double share) {
  const Tensor mine = is_kept(values, kept), row = mine.unsqueeze(-1), column = mine.unsqueeze(-2);
  const Tensor noise = noise_of(values).unsqueeze(-1);
  // Across the cut only the larger value's f counts, f / (s_i - s_j) and f / (s_i + s_j): the other one is 0.
  const Tensor both = row.logical_and(column), one = row.logical_xor(column);
  const auto across = [&](const Tensor& denominator, const Tensor& floor) {
    return divide_where(one.logical_and(denominator > floor), pair_sums(f), denominator);
  };
  const Tensor gap = (values.unsqueeze(-1) - values.unsqueeze(-2)).abs();
  return {at::where(both, inside.together, across(gap, noise)),
          at::where(both, inside.against, across(pair_sums(values), share * noise)),
          at::where(mine, inside.beside, at::zeros_like(f))};
}

}  // namespace

Tensor kept_values(const SingularFunction& function, const RankPolicy& policy, const Tensor& values,
                   double larger_side) {
  const std::int64_t k = values.size(-1);
  const auto all = [&](std::int64_t count) {
    return at::full(values.sizes().slice(0, values.dim() - 1), count,
                    values.options().dtype(at::kLong));
  };
  if (k == 0) return all(0);
  const Tensor largest = values.narrow(-1, 0, 1);
  Tensor kept;
  if (const auto* count = std::get_if<LeadingCount>(&policy))
    kept = all(std::min(count->count, k));
  else if (const auto* energy = std::get_if<LeadingEnergy>(&policy)) {
    const Tensor unit = at::where(largest == 0, at::ones_like(largest), largest);
    const Tensor sums = (values / unit).to(at::kDouble).square().cumsum(-1);
    kept = ((sums < energy->fraction * sums.narrow(-1, k - 1, 1)).sum(-1) + 1).clamp_max(k);
    // All of the energy: the result is the matrix itself, also for the matrices of higher rank near it.
    if (energy->fraction >= 1 && std::holds_alternative<SameValues>(function)) kept = all(k);
  } else {
    kept = all(k);
  }
  if (const auto* inverse = std::get_if<InverseValues>(&function)) {
    const double rtol = inverse->rtol.value_or(larger_side * epsilon_of(values));
    kept = at::minimum(kept, (values > rtol * largest).sum(-1));
  }
  return kept;
}

Tensor of_values(const SingularFunction& function, const Tensor& values, const Tensor& kept) {
  return at::where(is_kept(values, kept),
                   std::visit([&](const auto& f) { return value_of(f, values); }, function),
                   at::zeros_like(values));
}

SingularKernels singular_kernels(const SingularFunction& function, const Tensor& values,
                                 const Tensor& kept) {
  const Tensor row = values.unsqueeze(-1), column = values.unsqueeze(-2), noise = noise_of(values);
  const ValuePairs pairs{at::maximum(row, column), at::minimum(row, column), noise.unsqueeze(-1)};
  const Tensor f = of_values(function, values, kept);
  return std::visit(
      [&](const auto& chosen) {
        const double share = ends_at_zero(chosen) ? 1 : 0;
        const Tensor beside = std::is_same_v<std::decay_t<decltype(chosen)>, SameValues>
                                  ? at::ones_like(f)
                                  : divide_where(values > share * noise, f, values);
        return with_cut({together_of(chosen, pairs), against_of(chosen, pairs), beside}, f, values,
                        kept, share);
      },
      simplest(function));
}

SingularKernels singular_kernels(const Jet& jet, const Tensor& values, const Tensor& kept) {
  const Tensor noise = noise_of(values), sum = pair_sums(values);
  const SingularKernels all{
      DividedDifferences(values, jet).value,
      at::where(sum > noise.unsqueeze(-1), pair_sums(jet.f) / sum, pair_sums(jet.slope / 2)),
      at::where(values > noise, jet.f / values, jet.slope)};
  if (!kept.defined()) return all;
  const Tensor f = at::where(is_kept(values, kept), jet.f, at::zeros_like(jet.f));
  return with_cut(all, f, values, kept, /*share=*/1);
}

}  // namespace keel::ops
