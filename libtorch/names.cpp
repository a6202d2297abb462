#include "names.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "check.h"

namespace keel::ops {
namespace {

RuleName name(const Exact& rule) { return {"exact", rule.terms}; }
RuleName name(const Analytic&) { return {"analytic", std::nullopt}; }
RuleName name(const PowerIteration& rule) { return {"power_iteration", rule.terms}; }
RuleName name(const Taylor& rule) { return {"taylor", rule.terms}; }
RuleName name(const Lorentzian& rule) { return {"lorentzian", rule.width}; }
RuleName name(const Masked& rule) { return {"masked", rule.tolerance}; }

double number_or_off(const std::optional<double>& condition) {
  return condition.value_or(std::numeric_limits<double>::quiet_NaN());
}

std::optional<double> condition(double number) {
  return std::isnan(number) ? std::nullopt : std::optional(number);
}

PolicyName name(const FullRank&) { return {"full", {}}; }
PolicyName name(const LeadingCount& policy) { return {"leading_count", {double(policy.count)}}; }
PolicyName name(const LeadingEnergy& policy) { return {"leading_energy", {policy.fraction}}; }
PolicyName name(const Algorithm1& policy) {
  return {"algorithm1",
          {number_or_off(policy.eps), number_or_off(policy.rayleigh_tolerance),
           number_or_off(policy.energy), policy.keep_reaching ? 1.0 : 0.0}};
}

const char* name(const Zca&) { return "zca"; }
const char* name(const PcaDenoising&) { return "pca_denoising"; }
const char* name(const PcaWhitening&) { return "pca_whitening"; }

}  // namespace

RuleName name_of(const GradientRule& rule) {
  return std::visit([](const auto& r) { return name(r); }, rule);
}
RuleName name_of(const SpectralRule& rule) {
  return std::visit([](const auto& r) { return name(r); }, rule);
}
PolicyName name_of(const RankPolicy& policy) {
  // NaN stands for a condition that is off: one that is NaN must not pass for it.
  with_torch_errors("keel::RankPolicy", [&] { validate(policy); });
  return std::visit([](const auto& p) { return name(p); }, policy);
}

std::string name_of(SpectralFunction::Kind kind) {
  using Kind = SpectralFunction::Kind;
  switch (kind) {
    case Kind::one:
      return "one";
    case Kind::sqrt:
      return "sqrt";
    case Kind::inv_sqrt:
      return "inv_sqrt";
    case Kind::inv:
      return "inv";
    case Kind::log:
      return "log";
    case Kind::exp:
      return "exp";
    case Kind::power:
      return "power";
  }
  throw Error("keel::spectral: expected a SpectralFunction::Kind, got " +
              std::to_string(int(kind)));
}

GradientRule gradient_rule_of(const char* operation, StringView name, Optional<double> parameter) {
  return with_torch_errors(operation, [&] { return gradient_rule(text(name), to_std(parameter)); });
}

SpectralRule spectral_rule_of(const char* operation, StringView name, Optional<double> parameter) {
  return with_torch_errors(operation, [&] { return spectral_rule(text(name), to_std(parameter)); });
}

SpectralFunction spectral_function_of(const char* operation, StringView name, double exponent) {
  return with_torch_errors(operation, [&] { return spectral_function(text(name), exponent); });
}

RankPolicy rank_policy_of(const char* operation, StringView name, at::ArrayRef<double> parameters) {
  const std::string policy = text(name);
  const auto expect = [&](std::size_t count, const char* what) {
    TORCH_CHECK_VALUE(parameters.size() == count, operation, ": rank policy '", policy,
                      "' expected ", what, ", got ", parameters.size(), " numbers");
  };
  RankPolicy result;
  if (policy == "full") {
    expect(0, "no parameters");
  } else if (policy == "leading_count") {
    expect(1, "[count]");
    TORCH_CHECK_VALUE(parameters[0] == std::floor(parameters[0]), operation,
                      ": rank policy 'leading_count' expected a whole number, got ", parameters[0]);
    // Numbers travel as double: the largest counts, and infinity, mean all there are.
    constexpr double kMost = 0x1p62;
    result = LeadingCount{std::int64_t(std::min(std::max(parameters[0], -kMost), kMost))};
  } else if (policy == "leading_energy") {
    expect(1, "[fraction]");
    result = LeadingEnergy{parameters[0]};
  } else if (policy == "algorithm1") {
    if (parameters.empty()) {
      result = Algorithm1{};
    } else {
      expect(4, "[eps, rayleigh_tolerance, energy, keep_reaching] or none");
      result = Algorithm1{condition(parameters[0]), condition(parameters[1]),
                          condition(parameters[2]), parameters[3] != 0};
    }
  } else {
    TORCH_CHECK_VALUE(
        false, operation,
        ": expected rank policy full, leading_count, leading_energy or algorithm1, got '", policy,
        "'");
  }
  with_torch_errors(operation, [&] { validate(result); });
  return result;
}

MapName name_of(const SubspaceMap& map) {
  return std::visit([](const auto& m) { return MapName{name(m), m.eps, name_of(m.rank)}; }, map);
}

SubspaceMap subspace_map_of(const char* operation, StringView name, double eps,
                            StringView rank_policy, at::ArrayRef<double> rank_parameters) {
  RankPolicy rank = rank_policy_of(operation, rank_policy, rank_parameters);
  if (rank_parameters.empty() && std::holds_alternative<Algorithm1>(rank))
    rank = Algorithm1{.eps = eps};
  const std::string chosen = text(name);
  SubspaceMap map;
  if (chosen == "zca")
    map = Zca{eps, rank};
  else if (chosen == "pca_denoising")
    map = PcaDenoising{eps, rank};
  else if (chosen == "pca_whitening")
    map = PcaWhitening{eps, rank};
  else
    TORCH_CHECK_VALUE(false, operation, ": expected map zca, pca_denoising or pca_whitening, got '",
                      chosen, "'");
  with_torch_errors(operation, [&] { validate(map); });
  return map;
}

}  // namespace keel::ops
