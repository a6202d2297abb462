// Rules, rank policies, maps and functions as text and back, and the errors for invalid texts.

#include "keel/term.h"

#include <gtest/gtest.h>

#include <clocale>
#include <limits>

#include "keel/layer_matrix.h"
#include "support/errors.h"
#include "support/random.h"

namespace keel::testing {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// Fills fields with random valid numbers of all sizes.
struct Fill {
  Random random;

  double within(const term::Range& range) {
    const double size = std::exp(1400 * random.uniform() - 700);
    if (std::isfinite(range.most)) return std::min(1.0, random.uniform() + 1e-9);
    return std::isfinite(range.least) ? range.least + size : size - 1 / size;
  }
  bool coin() { return random.uniform() < 0.5; }

  void operator()(const char*, double& field, const term::Range& range) { field = within(range); }
  void operator()(const char*, std::optional<double>& field, const term::Range& range) {
    field = coin() ? std::optional(within(range)) : std::nullopt;
  }
  void operator()(const char*, bool& field) { field = coin(); }
  void operator()(const char*, std::integral auto& field, const term::Range& range) {
    using Integer = std::decay_t<decltype(field)>;
    field = Integer(range.least + std::exp((sizeof field > 4 ? 42 : 21) * random.uniform()));
    if (coin()) field = std::numeric_limits<Integer>::max();
  }
  template <typename... A>
  void operator()(const char*, std::variant<A...>& field) {
    const auto place = std::size_t(random.uniform() * sizeof...(A));
    const std::variant<A...> each[] = {A{}...};
    field = each[place];
    std::visit([&](auto& chosen) { chosen.fields(chosen, *this); }, field);
  }
};

/// Does not use to_string(), which is under test.
template <typename A>
bool same_fields(const A& a, const A& b) {
  bool same = true;
  int place = 0;
  A::fields(a, [&](const char*, const auto& x, const auto&...) {
    int other = 0;
    A::fields(b, [&](const char*, const auto& y, const auto&...) {
      if constexpr (std::is_same_v<decltype(x), decltype(y)>)
        if (other == place) {
          if constexpr (term::kIsVariant<std::decay_t<decltype(x)>>)
            same = same && x.index() == y.index() &&
                   std::visit(
                       [&](const auto& inside) {
                         return same_fields(inside, std::get<std::decay_t<decltype(inside)>>(y));
                       },
                       x);
          else
            same = same && x == y;
        }
      ++other;
    });
    ++place;
  });
  return same;
}

template <typename Variant>
void expect_round_trips(Variant (*parsed)(std::string_view, std::string_view)) {
  Fill fill{Random(7)};
  for (int round = 0; round < 500; ++round) {
    Variant value;
    fill("", value);
    const std::string text = to_string(value);
    const Variant back = parsed(text, "test");
    EXPECT_NO_THROW(validate(value)) << text;
    EXPECT_TRUE(std::visit(
        [&](const auto& chosen) {
          const auto* same = std::get_if<std::decay_t<decltype(chosen)>>(&back);
          return same != nullptr && same_fields(chosen, *same);
        },
        value))
        << text;
    EXPECT_TRUE(back == value) << text;
    EXPECT_EQ(to_string(back), text);
  }
}
TEST(Terms, EveryStructRoundTrips) {
  expect_round_trips<GradientRule>(gradient_rule);
  expect_round_trips<SpectralRule>(spectral_rule);
  expect_round_trips<RankPolicy>(rank_policy);
  expect_round_trips<LayerMap>(layer_map);
}

TEST(Terms, SpectralFunctionsRoundTrip) {
  for (const char* name : {"one", "sqrt", "inv_sqrt", "inv", "log", "exp"})
    EXPECT_EQ(to_string(spectral_function(name)), name);
  Fill fill{Random(8)};
  for (int round = 0; round < 200; ++round) {
    const double exponent = fill.within(term::kAny);
    const auto back = spectral_function(to_string({SpectralFunction::Kind::power, exponent}));
    EXPECT_EQ(back.kind, SpectralFunction::Kind::power);
    EXPECT_EQ(back.exponent, exponent);
  }
  EXPECT_EQ(to_string(spectral_function("power(exponent=-0.5)")), "power(exponent=-0.5)");
  EXPECT_EQ(spectral_function("power").exponent, 1);
}

TEST(Terms, AsTheyAreWritten) {
  EXPECT_EQ(to_string(GradientRule(Analytic{})), "analytic");
  EXPECT_EQ(to_string(GradientRule(PowerIteration{})), "power_iteration(terms=19)");
  EXPECT_EQ(to_string(GradientRule(Lorentzian{.width = 0.5})), "lorentzian(width=0.5)");
  EXPECT_EQ(to_string(GradientRule(Masked{})), "masked");
  EXPECT_EQ(to_string(GradientRule(Masked{.tolerance = 0.25})), "masked(tolerance=0.25)");
  EXPECT_EQ(to_string(SpectralRule(Exact{})), "exact(terms=19)");
  EXPECT_EQ(to_string(RankPolicy(FullRank{})), "full");
  EXPECT_EQ(to_string(RankPolicy(Algorithm1{.energy = std::nullopt})),
            "leading_reliable(eps=1e-04, rayleigh_tolerance=0.1, energy=off, keep_reaching=true, "
            "literal=false)");
  EXPECT_EQ(to_string(LayerMap(PcaDenoising{})),
            "pca_denoising(eps=1e-04, rank=leading_energy(fraction=0.99))");
}

TEST(Terms, AFieldLeftOutHasItsDefault) {
  EXPECT_EQ(to_string(gradient_rule("power_iteration")), "power_iteration(terms=19)");
  EXPECT_EQ(to_string(gradient_rule("taylor()")), "taylor(terms=9)");
  EXPECT_EQ(to_string(gradient_rule("masked(tolerance=off)")), "masked");
  EXPECT_EQ(to_string(rank_policy(" algorithm1 ( energy = off , eps = 0.5 ) ")),
            "leading_reliable(eps=0.5, rayleigh_tolerance=0.1, energy=off, keep_reaching=true, "
            "literal=false)");
  EXPECT_EQ(to_string(rank_policy("leading_reliable")), to_string(rank_policy("algorithm1")));
  EXPECT_EQ(to_string(layer_map("pca_denoising")), to_string(LayerMap(PcaDenoising{})));
  EXPECT_EQ(to_string(layer_map("pca_whitening(eps=0.5)")), "pca_whitening(eps=0.5, rank=full)");
}

TEST(Terms, Algorithm1TakesTheEpsOfTheMapAroundIt) {
  const std::string both = to_string(LayerMap(Zca{0.25, Algorithm1{.eps = 0.25}}));
  EXPECT_EQ(to_string(LayerMap(Zca{.eps = 0.25})), both);
  for (const char* text : {"zca(eps=0.25)", "zca(eps=0.25, rank=algorithm1)",
                           "zca(rank=algorithm1(keep_reaching=true), eps=0.25)"})
    EXPECT_EQ(to_string(layer_map(text)), both) << text;
  EXPECT_EQ(to_string(layer_map("zca(eps=0.25, rank=algorithm1(eps=0.5))")),
            to_string(LayerMap(Zca{0.25, Algorithm1{.eps = 0.5}})));
  EXPECT_EQ(to_string(layer_map("zca(rank=algorithm1(eps=off), eps=0.25)")),
            to_string(LayerMap(Zca{0.25, Algorithm1{.eps = std::nullopt}})));
}

TEST(Terms, UnknownNamesGetTheListOfKnownOnes) {
  EXPECT_EQ(
      error_of([] { gradient_rule("svd"); }),
      "keel::gradient_rule: expected analytic, power_iteration, taylor, lorentzian or masked, "
      "got \"svd\"");
  EXPECT_EQ(error_of([] { spectral_rule("autograd", "keel::sqrtm"); }),
            "keel::sqrtm: expected exact, analytic, power_iteration, taylor, lorentzian or masked, "
            "got \"autograd\"");
  EXPECT_EQ(error_of([] { spectral_function("sin"); }),
            "keel::spectral_function: expected one, sqrt, inv_sqrt, inv, log, exp or power, got "
            "\"sin\"");
  EXPECT_EQ(
      error_of([] { rank_policy("all"); }),
      "keel::rank_policy: expected full, leading_count, leading_energy or leading_reliable, got "
      "\"all\"");
  EXPECT_EQ(
      error_of([] { layer_map("zca(rank=all)"); }),
      "keel::layer_map: expected full, leading_count, leading_energy or leading_reliable, got "
      "\"all\" at character 10 of \"zca(rank=all)\"");
  EXPECT_EQ(error_of([] { gradient_rule("taylor(width=1)"); }),
            "keel::gradient_rule: expected terms=..., got \"width\" at character 8 of "
            "\"taylor(width=1)\"");
  EXPECT_EQ(error_of([] { gradient_rule("analytic(terms=1)"); }),
            "keel::gradient_rule: expected no fields, got \"terms\" at character 10 of "
            "\"analytic(terms=1)\"");
  EXPECT_EQ(error_of([] { spectral_function("sqrt(exponent=2)"); }),
            "keel::spectral_function: expected no fields, got \"exponent\" at character 6 of "
            "\"sqrt(exponent=2)\"");
}

TEST(Terms, NumbersHaveARange) {
  EXPECT_EQ(error_of([] { gradient_rule("taylor(terms=2.5)"); }),
            "keel::gradient_rule: expected terms to be a whole number from 1 to 2147483647, got "
            "\"2.5\" at character 14 of \"taylor(terms=2.5)\"");
  EXPECT_EQ(error_of([] { rank_policy("algorithm1(eps=-1)"); }),
            "keel::rank_policy: expected eps to be a finite number >= 0 or off, got \"-1\" at "
            "character 16 of \"algorithm1(eps=-1)\"");
  for (const char* number :
       {"0", "-1", "2147483648", "1e300", "1e1", "19.0", "nan", "", "0x5", "1 2"})
    EXPECT_THROW(gradient_rule("taylor(terms=" + std::string(number) + ")"), Error) << number;
  for (const char* number :
       {"0", "-1", "nan", "inf", "-inf", "infinity", "1e999", "1e-999", "0x1p3", "1,5", "1.5f",
        "+1", "one", "", "off", "true", "1e", "--1", "1_0"})
    EXPECT_THROW(gradient_rule("lorentzian(width=" + std::string(number) + ")"), Error) << number;
  for (const char* number : {"0", "1.5", "-0.5", "nan", "off"})
    EXPECT_THROW(rank_policy("leading_energy(fraction=" + std::string(number) + ")"), Error);
  for (const char* flag : {"1", "True", "yes", "off", ""})
    EXPECT_THROW(rank_policy("algorithm1(keep_reaching=" + std::string(flag) + ")"), Error);
  EXPECT_THROW(rank_policy("leading_count(count=9223372036854775808)"), Error);
  EXPECT_THROW(spectral_function("power(exponent=inf)"), Error);
  EXPECT_NO_THROW(gradient_rule("masked(tolerance=0)"));
  EXPECT_NO_THROW(rank_policy("leading_energy(fraction=1)"));
  EXPECT_NO_THROW(gradient_rule("lorentzian(width=5e-324)"));
}

TEST(Terms, BrokenTextsAreErrorsThatSayWhere) {
  EXPECT_EQ(
      error_of([] { gradient_rule(""); }),
      "keel::gradient_rule: expected analytic, power_iteration, taylor, lorentzian or masked, "
      "got the end");
  EXPECT_EQ(error_of([] { gradient_rule("taylor(terms=3"); }),
            "keel::gradient_rule: expected \",\" or \")\", got the end at character 15 of "
            "\"taylor(terms=3\"");
  EXPECT_EQ(
      error_of([] { gradient_rule("taylor(terms 3)"); }),
      "keel::gradient_rule: expected \"=\", got \"3\" at character 14 of \"taylor(terms 3)\"");
  EXPECT_EQ(error_of([] { gradient_rule("taylor(terms=3) and more"); }),
            "keel::gradient_rule: expected the end, got \"and\" at character 17 of "
            "\"taylor(terms=3) and more\"");
  EXPECT_EQ(error_of([] { gradient_rule("taylor(terms=3, terms=3)"); }),
            "keel::gradient_rule: expected terms once, got \"terms\" at character 17 of "
            "\"taylor(terms=3, terms=3)\"");
  for (const char* text : {"(", ")", "=", ",", "masked)", "masked(", "masked((", "masked(tolerance",
                           "masked(tolerance=", "masked(tolerance=1,", "masked(tolerance=1,)",
                           "masked(,)", "masked(tolerance==1)", "masked()()", "masked masked",
                           "Masked", "masked(tolerance=masked)", "\tmasked", "masked\n"})
    EXPECT_THROW(gradient_rule(text), Error) << text;
  EXPECT_THROW(gradient_rule(std::string_view("masked\0", 7)), Error);
  EXPECT_THROW(layer_map("zca(rank=full(eps=1))"), Error);
}

TEST(Terms, MessagesStayShortAndPrintable) {
  const std::string hostile = "m\x01\xff" + std::string(1 << 20, '(');
  const std::string said = error_of([&] { gradient_rule(hostile); });
  EXPECT_LT(said.size(), 500u);
  for (const char c : said) EXPECT_TRUE(c >= ' ' && c <= '~');
  std::string deep = "zca(rank=";
  for (int k = 0; k < 100'000; ++k) deep += "zca(rank=";
  EXPECT_THROW(layer_map(deep), Error);
}

TEST(Terms, NoLocaleChangesThem) {
  const std::string before = std::setlocale(LC_ALL, nullptr);
  for (const char* name : {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8"})
    if (std::setlocale(LC_ALL, name) != nullptr) break;
  EXPECT_EQ(to_string(gradient_rule("lorentzian(width=0.25)")), "lorentzian(width=0.25)");
  std::setlocale(LC_ALL, before.c_str());
}

TEST(Terms, StructsAreCheckedAsTextsAre) {
  EXPECT_EQ(
      error_of([] { validate(GradientRule(PowerIteration{.terms = 0})); }),
      "keel::power_iteration: expected terms to be a whole number from 1 to 2147483647, got 0");
  EXPECT_EQ(error_of([] { validate(GradientRule(Lorentzian{.width = 0})); }),
            "keel::lorentzian: expected width to be a finite number > 0, got 0");
  EXPECT_EQ(error_of([] { validate(GradientRule(Masked{.tolerance = -1})); }),
            "keel::masked: expected tolerance to be a finite number >= 0, got -1");
  EXPECT_EQ(error_of([] { validate(RankPolicy(LeadingEnergy{.fraction = 1.5})); }),
            "keel::leading_energy: expected fraction to be a number in (0, 1], got 1.5");
  EXPECT_EQ(error_of([] {
              validate(LayerMap(PcaDenoising{1e-4, LeadingCount{0}}));
            }),
            "keel::leading_count: expected count to be a whole number from 1 to "
            "9223372036854775807, got 0");
  EXPECT_EQ(error_of([] {
              validate(LayerMap(Zca{-1, FullRank{}}));
            }),
            "keel::zca: expected eps to be a finite number >= 0, got -1");
  EXPECT_THROW(validate(SpectralRule(Taylor{.terms = -1})), Error);
  EXPECT_THROW(validate(SpectralRule(Exact{.terms = 0})), Error);
  EXPECT_THROW(validate(RankPolicy(LeadingEnergy{.fraction = kNaN})), Error);
  EXPECT_THROW(validate(RankPolicy(Algorithm1{.eps = kNaN})), Error);
  EXPECT_THROW(validate(RankPolicy(Algorithm1{.rayleigh_tolerance = 0})), Error);
  EXPECT_THROW(validate(RankPolicy(Algorithm1{.energy = 0})), Error);
  EXPECT_THROW(to_string(SpectralFunction{SpectralFunction::Kind(99)}), Error);
}

}  // namespace
}  // namespace keel::testing
