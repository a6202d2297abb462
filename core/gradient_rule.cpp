#include "keel/gradient_rule.h"

#include <cmath>
#include <limits>

#include "keel/error.h"
#include "text.h"

namespace keel {

namespace {

void validate_terms(const char* rule, int terms) {
  require(terms >= 1, std::string("keel::") + rule + ": expected terms >= 1, got " + text(terms));
}

int whole_terms(const std::string& rule, double terms) {
  require(terms >= 1 && terms <= std::numeric_limits<int>::max() && std::floor(terms) == terms,
          "keel::gradient_rule: expected a whole number of terms >= 1 for " + rule + ", got " +
              text(terms));
  return int(terms);
}

struct Validate {
  void operator()(const Analytic&) const {}
  void operator()(const PowerIteration& rule) const {
    validate_terms("PowerIteration", rule.terms);
  }
  void operator()(const Taylor& rule) const { validate_terms("Taylor", rule.terms); }
  void operator()(const Lorentzian& rule) const {
    require(std::isfinite(rule.width) && rule.width > 0,
            "keel::Lorentzian: expected a finite width > 0, got " + text(rule.width));
  }
  void operator()(const Masked& rule) const {
    if (!rule.tolerance) return;
    require(std::isfinite(*rule.tolerance) && *rule.tolerance >= 0,
            "keel::Masked: expected a finite tolerance >= 0, got " + text(*rule.tolerance));
  }
};

struct ToString {
  std::string operator()(const Analytic&) const { return "analytic"; }
  std::string operator()(const PowerIteration& rule) const {
    return "power_iteration(terms=" + text(rule.terms) + ")";
  }
  std::string operator()(const Taylor& rule) const {
    return "taylor(terms=" + text(rule.terms) + ")";
  }
  std::string operator()(const Lorentzian& rule) const {
    return "lorentzian(width=" + text(rule.width) + ")";
  }
  std::string operator()(const Masked& rule) const {
    return rule.tolerance ? "masked(tolerance=" + text(*rule.tolerance) + ")" : "masked";
  }
};

GradientRule named(const std::string& name, std::optional<double> parameter) {
  if (name == "analytic") {
    require(!parameter,
            "keel::gradient_rule: analytic takes no parameter, got " + text(parameter.value_or(0)));
    return Analytic{};
  }
  if (name == "power_iteration")
    return parameter ? PowerIteration{whole_terms(name, *parameter)} : PowerIteration{};
  if (name == "taylor") return parameter ? Taylor{whole_terms(name, *parameter)} : Taylor{};
  if (name == "lorentzian") return parameter ? Lorentzian{*parameter} : Lorentzian{};
  if (name == "masked") return Masked{parameter};
  throw Error(
      "keel::gradient_rule: expected analytic, power_iteration, taylor, lorentzian or masked, got "
      "\"" +
      name + "\"");
}

}  // namespace

void validate(const GradientRule& rule) { std::visit(Validate{}, rule); }

std::string to_string(const GradientRule& rule) { return std::visit(ToString{}, rule); }

GradientRule gradient_rule(const std::string& name, std::optional<double> parameter) {
  const GradientRule rule = named(name, parameter);
  validate(rule);
  return rule;
}

}  // namespace keel
