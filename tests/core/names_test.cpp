// Names, parameters and messages of rules, functions and rank policies.

#include <gtest/gtest.h>

#include <limits>

#include "keel/error.h"
#include "keel/spectral.h"

namespace keel::testing {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

template <typename Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Names, GradientRulesRoundTrip) {
  EXPECT_EQ(to_string(GradientRule(Analytic{})), "analytic");
  EXPECT_EQ(to_string(GradientRule(PowerIteration{})), "power_iteration(terms=19)");
  EXPECT_EQ(to_string(GradientRule(Taylor{})), "taylor(terms=9)");
  EXPECT_EQ(to_string(GradientRule(Lorentzian{.width = 0.5})), "lorentzian(width=0.5)");
  EXPECT_EQ(to_string(GradientRule(Masked{})), "masked");
  EXPECT_EQ(to_string(GradientRule(Masked{.tolerance = 0.25})), "masked(tolerance=0.25)");
  EXPECT_EQ(to_string(gradient_rule("power_iteration", 7)), "power_iteration(terms=7)");
  EXPECT_EQ(to_string(gradient_rule("taylor")), "taylor(terms=9)");
  EXPECT_EQ(to_string(gradient_rule("lorentzian", 0.25)), "lorentzian(width=0.25)");
  EXPECT_EQ(to_string(gradient_rule("masked", 0.0)), "masked(tolerance=0)");
  EXPECT_EQ(to_string(gradient_rule("analytic")), "analytic");
}

TEST(Names, GradientRuleErrorsSayWhatCame) {
  EXPECT_EQ(
      message_of([] { gradient_rule("svd"); }),
      "keel::gradient_rule: expected analytic, power_iteration, taylor, lorentzian or masked, "
      "got \"svd\"");
  EXPECT_EQ(message_of([] { gradient_rule("taylor", 2.5); }),
            "keel::gradient_rule: expected a whole number of terms >= 1 for taylor, got 2.5");
  EXPECT_EQ(message_of([] { gradient_rule("analytic", 1); }),
            "keel::gradient_rule: analytic takes no parameter, got 1");
  EXPECT_EQ(message_of([] { validate(GradientRule(PowerIteration{.terms = 0})); }),
            "keel::PowerIteration: expected terms >= 1, got 0");
  EXPECT_EQ(message_of([] { validate(GradientRule(Taylor{.terms = -1})); }),
            "keel::Taylor: expected terms >= 1, got -1");
  EXPECT_EQ(message_of([] { validate(GradientRule(Lorentzian{.width = 0})); }),
            "keel::Lorentzian: expected a finite width > 0, got 0");
  EXPECT_EQ(message_of([] { validate(GradientRule(Masked{.tolerance = -1})); }),
            "keel::Masked: expected a finite tolerance >= 0, got -1");
  EXPECT_THROW(gradient_rule("power_iteration", 1e300), Error);
  EXPECT_THROW(gradient_rule("power_iteration", kNaN), Error);
  EXPECT_THROW(gradient_rule("lorentzian", kNaN), Error);
  EXPECT_THROW(gradient_rule("masked", std::numeric_limits<double>::infinity()), Error);
}

TEST(Names, SpectralRules) {
  EXPECT_EQ(to_string(spectral_rule("exact")), "exact(terms=19)");
  EXPECT_EQ(to_string(spectral_rule("exact", 4)), "exact(terms=4)");
  EXPECT_EQ(to_string(spectral_rule("power_iteration", 20)), "power_iteration(terms=20)");
  EXPECT_EQ(to_string(spectral_rule("masked")), "masked");
  EXPECT_EQ(message_of([] { spectral_rule("autograd"); }),
            "keel::spectral_rule: expected exact, analytic, power_iteration, taylor, lorentzian or "
            "masked, got \"autograd\"");
  EXPECT_EQ(message_of([] { validate(SpectralRule(Exact{.terms = 0})); }),
            "keel::Exact: expected terms >= 1, got 0");
  EXPECT_THROW(spectral_rule("exact", 0.5), Error);
  EXPECT_THROW(validate(SpectralRule(Taylor{.terms = 0})), Error);
}

TEST(Names, SpectralFunctionsRoundTrip) {
  for (const char* name : {"one", "sqrt", "inv_sqrt", "inv", "log", "exp"})
    EXPECT_EQ(to_string(spectral_function(name)), name);
  EXPECT_EQ(to_string(spectral_function("power", -0.5)), "power(exponent=-0.5)");
  EXPECT_EQ(
      message_of([] { spectral_function("sin"); }),
      "keel::spectral_function: expected one of one, sqrt, inv_sqrt, inv, log, exp, power, got "
      "\"sin\"");
  EXPECT_THROW(spectral_function("power", kNaN), Error);
}

TEST(Names, RankPolicies) {
  EXPECT_EQ(to_string(RankPolicy(FullRank{})), "full");
  EXPECT_EQ(to_string(RankPolicy(LeadingCount{.count = 16})), "leading_count(count=16)");
  EXPECT_EQ(to_string(RankPolicy(LeadingEnergy{})), "leading_energy(fraction=0.99)");
  EXPECT_EQ(to_string(RankPolicy(Algorithm1{.energy = std::nullopt})),
            "algorithm1(eps=1e-04, rayleigh_tolerance=0.1, energy=off, keep_reaching=true)");
  EXPECT_EQ(message_of([] { validate(RankPolicy(LeadingCount{.count = 0})); }),
            "keel::LeadingCount: expected count >= 1, got 0");
  EXPECT_EQ(message_of([] { validate(RankPolicy(LeadingEnergy{.fraction = 1.5})); }),
            "keel::LeadingEnergy: expected fraction in (0, 1], got 1.5");
  EXPECT_THROW(validate(RankPolicy(LeadingEnergy{.fraction = kNaN})), Error);
  EXPECT_THROW(validate(RankPolicy(Algorithm1{.eps = -1})), Error);
  EXPECT_THROW(validate(RankPolicy(Algorithm1{.rayleigh_tolerance = 0})), Error);
  EXPECT_THROW(validate(RankPolicy(Algorithm1{.energy = 0})), Error);
}

}  // namespace
}  // namespace keel::testing
