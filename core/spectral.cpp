#include "keel/spectral.h"

#include <cmath>
#include <limits>

#include "keel/error.h"
#include "text.h"

namespace keel {

namespace {

using Kind = SpectralFunction::Kind;

struct NamedKind {
  const char* name;
  Kind kind;
};
constexpr NamedKind kKinds[] = {
    {"one", Kind::one}, {"sqrt", Kind::sqrt}, {"inv_sqrt", Kind::inv_sqrt}, {"inv", Kind::inv},
    {"log", Kind::log}, {"exp", Kind::exp},   {"power", Kind::power},
};

std::string or_off(const std::optional<double>& condition) {
  return condition ? text(*condition) : "off";
}

void validate_fraction(const char* what, double fraction) {
  require(fraction > 0 && fraction <= 1,
          std::string("keel::") + what + " in (0, 1], got " + text(fraction));
}

struct ValidatePolicy {
  void operator()(const FullRank&) const {}
  void operator()(const LeadingCount& policy) const {
    require(policy.count >= 1,
            "keel::LeadingCount: expected count >= 1, got " + text(policy.count));
  }
  void operator()(const LeadingEnergy& policy) const {
    validate_fraction("LeadingEnergy: expected fraction", policy.fraction);
  }
  void operator()(const Algorithm1& policy) const {
    if (policy.eps)
      require(std::isfinite(*policy.eps) && *policy.eps >= 0,
              "keel::Algorithm1: expected a finite eps >= 0, got " + text(*policy.eps));
    if (policy.rayleigh_tolerance)
      require(std::isfinite(*policy.rayleigh_tolerance) && *policy.rayleigh_tolerance > 0,
              "keel::Algorithm1: expected a finite rayleigh_tolerance > 0, got " +
                  text(*policy.rayleigh_tolerance));
    if (policy.energy) validate_fraction("Algorithm1: expected energy", *policy.energy);
  }
};

struct PolicyToString {
  std::string operator()(const FullRank&) const { return "full"; }
  std::string operator()(const LeadingCount& policy) const {
    return "leading_count(count=" + text(policy.count) + ")";
  }
  std::string operator()(const LeadingEnergy& policy) const {
    return "leading_energy(fraction=" + text(policy.fraction) + ")";
  }
  std::string operator()(const Algorithm1& policy) const {
    return "algorithm1(eps=" + or_off(policy.eps) +
           ", rayleigh_tolerance=" + or_off(policy.rayleigh_tolerance) +
           ", energy=" + or_off(policy.energy) +
           ", keep_reaching=" + (policy.keep_reaching ? "true" : "false") + ")";
  }
};

struct ValidateRule {
  void operator()(const Exact& rule) const {
    require(rule.terms >= 1, "keel::Exact: expected terms >= 1, got " + text(rule.terms));
  }
  void operator()(const auto& rule) const { validate(GradientRule(rule)); }
};

struct RuleToString {
  std::string operator()(const Exact& rule) const {
    return "exact(terms=" + text(rule.terms) + ")";
  }
  std::string operator()(const auto& rule) const { return to_string(GradientRule(rule)); }
};

}  // namespace

std::string to_string(const SpectralFunction& function) {
  if (function.kind == Kind::power) return "power(exponent=" + text(function.exponent) + ")";
  for (const auto& [name, kind] : kKinds)
    if (kind == function.kind) return name;
  throw Error("keel::to_string: unknown kind of spectral function");
}

SpectralFunction spectral_function(const std::string& name, double exponent) {
  std::string known;
  for (const auto& [known_name, kind] : kKinds) {
    if (name == known_name) {
      require(kind != Kind::power || std::isfinite(exponent),
              "keel::spectral_function: expected a finite exponent, got " + text(exponent));
      return {kind, exponent};
    }
    known += (known.empty() ? "" : ", ") + std::string(known_name);
  }
  throw Error("keel::spectral_function: expected one of " + known + ", got \"" + name + "\"");
}

void validate(const RankPolicy& policy) { std::visit(ValidatePolicy{}, policy); }
std::string to_string(const RankPolicy& policy) { return std::visit(PolicyToString{}, policy); }

void validate(const SpectralRule& rule) { std::visit(ValidateRule{}, rule); }
std::string to_string(const SpectralRule& rule) { return std::visit(RuleToString{}, rule); }

SpectralRule spectral_rule(const std::string& name, std::optional<double> parameter) {
  if (name == "exact") {
    if (!parameter) return Exact{};
    // The terms are checked as those of the series they are.
    return Exact{std::get<PowerIteration>(gradient_rule("power_iteration", parameter)).terms};
  }
  for (const char* known : {"analytic", "power_iteration", "taylor", "lorentzian", "masked"})
    if (name == known)
      return std::visit([](const auto& rule) -> SpectralRule { return rule; },
                        gradient_rule(name, parameter));
  throw Error(
      "keel::spectral_rule: expected exact, analytic, power_iteration, taylor, lorentzian or "
      "masked, "
      "got \"" +
      name + "\"");
}

}  // namespace keel
