#include "support.h"

#include <gtest/gtest.h>

namespace keel::test {
namespace {

using Function = std::function<Tensor(const Tensor&)>;
const std::vector<std::pair<std::string, Function>> kFunctions = {
    {"sqrtm", [](const Tensor& m) { return sqrtm(m); }},
    {"inv_sqrtm", [](const Tensor& m) { return inv_sqrtm(m); }},
    {"invm", [](const Tensor& m) { return invm(m); }},
    {"logm", [](const Tensor& m) { return logm(m); }},
    {"expm", [](const Tensor& m) { return expm(m); }},
    {"powm(0.3)", [](const Tensor& m) { return powm(m, 0.3); }},
    {"powm(3)", [](const Tensor& m) { return powm(m, 3); }},
    {"powm(-2)", [](const Tensor& m) { return powm(m, -2); }},
};

Loss linear_loss(const Function& function, const Tensor& weight) {
  return [=](const Tensor& m) { return (function(m) * weight).sum(); };
}

TEST(Spectral, FunctionsAreWhatTheirNamesSay) {
  const Tensor m = with_spectrum({3, 2, 1, 0.5});
  EXPECT_LT(relative_error(sqrtm(m).matmul(sqrtm(m)), m), 1e-13);
  EXPECT_LT(relative_error(inv_sqrtm(m), torch::inverse(sqrtm(m))), 1e-13);
  EXPECT_LT(relative_error(invm(m), torch::inverse(m)), 1e-13);
  EXPECT_LT(relative_error(expm(m), torch::matrix_exp(m)), 1e-13);
  EXPECT_LT(relative_error(expm(logm(m)), m), 1e-13);
  EXPECT_LT(relative_error(powm(m, 3), m.matmul(m).matmul(m)), 1e-13);
  EXPECT_LT(relative_error(powm(powm(m, 0.3), 1 / 0.3), m), 1e-13);
}

TEST(Spectral, GradientsAgreeWithDifferencesAtDistinctAndRepeatedEigenvalues) {
  const Tensor weight = random({5, 5}, 4);
  for (const auto& [name, function] : kFunctions) {
    for (const std::vector<double>& values : {std::vector<double>{2.5, 2, 1.5, 1, 0.5},
                                              {2, 2, 1, 1, 0.5},
                                              {1, 1, 1, 1, 1},
                                              {2, 2 - 1e-9, 1, 1 - 1e-13, 0.5}}) {
      const Tensor m = with_spectrum(values);
      const Tensor ours = gradient(linear_loss(function, weight), m);
      const Tensor expected = difference_gradient(linear_loss(function, weight), m);
      EXPECT_LT(relative_error(ours, expected), 1e-8) << name << " at " << values;
    }
  }
}

TEST(Spectral, OffDiagonalEntriesAtTheIdentityAreExact) {
  const Tensor identity = torch::eye(4, at::kDouble);
  const auto slope = [&](const Function& function) {
    return gradient([&](const Tensor& m) { return function(m)[2][1]; }, identity);
  };
  for (const auto& [name, function, derivative] :
       std::vector<std::tuple<std::string, Function, double>>{
           {"sqrtm", kFunctions[0].second, 0.5},
           {"inv_sqrtm", kFunctions[1].second, -0.5},
           {"logm", kFunctions[3].second, 1.0}}) {
    Tensor expected = torch::zeros({4, 4}, at::kDouble);
    expected[2][1] = expected[1][2] = derivative / 2;
    EXPECT_TRUE(torch::allclose(slope(function), expected, 0, 1e-15)) << name;
  }
}

TEST(Spectral, SecondDerivativesAgreeWithDifferencesAlsoAtRepeats) {
  const Tensor weight = random({4, 4}, 4), direction = random_symmetric({4, 4}, 5);
  for (const auto& [name, function] : kFunctions) {
    for (const std::vector<double>& values :
         {std::vector<double>{2, 1.5, 1, 0.5}, {2, 2, 1, 1}, {1, 1, 1, 1}}) {
      const auto along = [&](const Tensor& a, bool create_graph) {
        const torch::AutoGradMode enabled(true);
        const Tensor x = create_graph ? a : a.detach().clone().requires_grad_(true);
        const Tensor loss = linear_loss(function, weight)(x);
        return (torch::autograd::grad({loss}, {x}, {}, true, create_graph)[0] * direction).sum();
      };
      const Tensor m = with_spectrum(values);
      const Tensor ours = gradient([&](const Tensor& a) { return along(a, true); }, m);
      const Tensor expected =
          difference_gradient([&](const Tensor& a) { return along(a, false); }, m);
      // At repeats, the second derivative of M^3 along a direction may be small, so scale by the first.
      EXPECT_LT(relative_error(ours, expected), 1e-7) << name << " at " << values;
    }
  }
}

TEST(Spectral, SecondDerivativesReachTheIncomingGradient) {
  // d/dw of <direction, dL/dM> for L = <w, f(M)> is linear in w, so the slope is known.
  const Tensor m = with_spectrum({2, 2, 1}).requires_grad_(true);
  const Tensor direction = random_symmetric({3, 3}, 2);
  const Tensor w = random({3, 3}, 3).requires_grad_(true);
  const Tensor g = torch::autograd::grad({(logm(m) * w).sum()}, {m}, {}, true, true)[0];
  const Tensor along = (g * direction).sum();
  const Tensor by_w = torch::autograd::grad({along}, {w}, {}, true)[0];
  EXPECT_NEAR((by_w * w).sum().item<double>(), along.item<double>(),
              1e-13 * std::abs(along.item<double>()));
}

TEST(Spectral, AConditionThatIsNaNIsNoneThatIsOff) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(fails_with(
      "keel::spectral: expected eps to be a finite number >= 0 or off, got \"nan\"",
      [&] { spectral(torch::eye(3), {SpectralFunction::Kind::inv}, Algorithm1{.eps = nan}); }));
}

TEST(Spectral, DerivativesThatAreNotThereAreNamedErrors) {
  const Tensor m = with_spectrum({3, 2, 1}).requires_grad_(true);
  const auto first = [&](const Tensor& result) {
    return torch::autograd::grad({result.sum()}, {m}, {}, true, true)[0];
  };
  const auto second = [&](const Tensor& result) {
    return torch::autograd::grad({first(result).sum()}, {m}, {}, true, true)[0];
  };
  EXPECT_TRUE(fails_with(
      "keel::spectral: no second derivative under rule power_iteration(terms=7) with rank policy "
      "full; use rule exact with rank policy full, or build the function from keel::eigh",
      [&] { second(sqrtm(m, PowerIteration{7})); }));
  EXPECT_TRUE(fails_with("under rule exact(terms=19) with rank policy leading_count",
                         [&] { second(projector(m, LeadingCount{2})); }));
  EXPECT_TRUE(fails_with("keel::spectral: no third derivative of log under rule exact; build",
                         [&] { second(first(logm(m))); }));
  // A graph that is created but not used does no harm.
  EXPECT_TRUE(all_finite(first(projector(m, LeadingCount{2}))));
}

TEST(Spectral, RankPoliciesAndTheOtherOutputs) {
  const Tensor m = torch::stack({with_spectrum({8, 1, 0.6, 0.4}), with_spectrum({5, 4, 0.5, 0.5})});
  const SpectralFunction inverse{SpectralFunction::Kind::inv};
  const auto rank_of = [&](const RankPolicy& policy) { return spectral(m, inverse, policy).kept; };
  const auto ranks = [](std::vector<std::int64_t> r) { return torch::tensor(r, at::kLong); };
  EXPECT_TRUE(torch::equal(rank_of(FullRank{}), ranks({4, 4})));
  EXPECT_TRUE(torch::equal(rank_of(LeadingCount{3}), ranks({3, 3})));
  EXPECT_TRUE(torch::equal(rank_of(LeadingCount{9}), ranks({4, 4})));
  EXPECT_TRUE(torch::equal(rank_of(LeadingEnergy{0.79}), ranks({1, 2})));
  EXPECT_TRUE(torch::equal(rank_of(Algorithm1{}), ranks({4, 4})));
  EXPECT_TRUE(
      torch::equal(rank_of(Algorithm1{.eps = 0.55, .energy = std::nullopt}), ranks({3, 2})));
  EXPECT_TRUE(torch::equal(rank_of(Algorithm1{.eps = {}, .rayleigh_tolerance = {}, .energy = 0.85}),
                           ranks({2, 2})));

  const Tensor x = m.clone().requires_grad_(true);
  const auto [result, kept] = spectral(x, inverse, LeadingCount{2});
  const auto [values, vectors] = eigh(m, Masked{}, {.descending = true});
  const Tensor v = vectors.narrow(-1, 0, 2), l = values.narrow(-1, 0, 2);
  EXPECT_LT(relative_error(result, v.matmul(torch::diag_embed(1 / l)).matmul(v.mT())), 1e-14);
  EXPECT_TRUE(result.requires_grad());
  EXPECT_FALSE(kept.requires_grad());
  EXPECT_EQ(kept.sizes(), (std::vector<std::int64_t>{2}));
}

TEST(Spectral, TheProjectorsGradientIsTheSeriesAndConvergesToTheExactOne) {
  const Tensor m = with_spectrum({2, 1.5, 0.3, 0.2}), weight = random({4, 4}, 3);
  const Loss loss = [&](const Tensor& a) { return (projector(a, LeadingCount{2}) * weight).sum(); };
  const Tensor expected = difference_gradient(loss, m);
  EXPECT_LT(relative_error(gradient(loss, m), expected), 1e-8);
  // A cut through an eigenspace has no exact gradient. It is bounded by terms / l.
  const Tensor cut = torch::eye(4, at::kDouble);
  const Tensor g = gradient(
      [&](const Tensor& a) { return (projector(a, LeadingCount{2}, Exact{5}) * weight).sum(); },
      cut);
  EXPECT_TRUE(all_finite(g));
  EXPECT_LE(g.norm().item<double>(), 5 * weight.norm().item<double>());
}

TEST(Spectral, OtherRulesEqualTheSameFunctionBuiltFromEigh) {
  const Tensor m = with_spectrum({2, 1.9, 1, 0.7}), weight = random_symmetric({4, 4}, 3);
  for (const GradientRule& rule :
       std::vector<GradientRule>{Analytic{}, PowerIteration{}, Taylor{}, Lorentzian{}, Masked{}}) {
    const Tensor built = gradient(
        [&](const Tensor& a) {
          const auto [l, v] = eigh(a, rule);
          return (v.matmul(torch::diag(l.rsqrt())).matmul(v.t()) * weight).sum();
        },
        m);
    const SpectralRule spectral_rule =
        std::visit([](const auto& r) -> SpectralRule { return r; }, rule);
    const Tensor ours =
        gradient([&](const Tensor& a) { return (inv_sqrtm(a, spectral_rule) * weight).sum(); }, m);
    EXPECT_LT(relative_error(ours, built), 1e-12) << to_string(rule);
  }
}

TEST(Spectral, ShapesTypesAndLayouts) {
  for (const std::vector<std::int64_t>& shape :
       {std::vector<std::int64_t>{0, 0}, {3, 0, 0}, {0, 4, 4}, {1, 1}, {2, 3, 4, 4}}) {
    const Tensor a = random(shape, 1), m = (a.matmul(a.mT()) + 1).requires_grad_(true);
    const auto [result, kept] = spectral(m, {SpectralFunction::Kind::exp}, LeadingEnergy{0.9});
    EXPECT_EQ(result.sizes(), shape);
    EXPECT_EQ(kept.dim(), m.dim() - 2);
    result.sum().backward();
    EXPECT_EQ(m.grad().sizes(), shape);
  }
  const Tensor a = random({6, 2, 4, 4}, 1);
  const Tensor m = a.matmul(a.mT()) + torch::eye(4, at::kDouble);
  const Tensor moved = m.transpose(0, 1);
  EXPECT_TRUE(torch::equal(logm(moved), logm(moved.contiguous())));
  for (const auto& [type, tolerance] : std::vector<std::pair<at::ScalarType, double>>{
           {at::kFloat, 1e-5}, {at::kHalf, 2e-3}, {at::kBFloat16, 1e-2}}) {
    const Tensor typed = m.to(type).clone().requires_grad_(true);
    const Tensor s = inv_sqrtm(typed);
    EXPECT_EQ(s.scalar_type(), type);
    s.square().sum().backward();
    EXPECT_EQ(typed.grad().scalar_type(), type);
    const Tensor exact = typed.detach().to(at::kDouble);
    EXPECT_LT(relative_error(s, inv_sqrtm(exact)), tolerance);
    EXPECT_LT(relative_error(typed.grad(), -invm(exact).matmul(invm(exact))), 4 * tolerance);
  }
  const Tensor meta = torch::empty({2, 5, 5}, at::kMeta).requires_grad_(true);
  projector(meta, LeadingCount{2}).sum().backward();
  EXPECT_EQ(meta.grad().sizes(), meta.sizes());
}

TEST(Spectral, WhereTheFunctionIsNotDefinedTheMatrixIsNaNAndNoOther) {
  const Tensor m = torch::stack({with_spectrum({2, 1, 0.5}), with_spectrum({2, 1, -0.5}),
                                 torch::full({3, 3}, NAN, at::kDouble), with_spectrum({3, 2, 1})});
  const Tensor x = m.clone().requires_grad_(true);
  const Tensor s = logm(x);
  s.sum().backward();
  for (const int index : {1, 2}) {
    EXPECT_TRUE(all_nan(s[index]));
    EXPECT_TRUE(all_nan(x.grad()[index]));
  }
  for (const int index : {0, 3}) {
    EXPECT_TRUE(all_finite(s[index]));
    const Tensor alone = gradient([](const Tensor& a) { return logm(a).sum(); }, m[index]);
    EXPECT_LT(relative_error(x.grad()[index], alone), 1e-14);
  }
}

TEST(Spectral, TakesAFunctionOfYourOwnWithItsParameters) {
  const Tensor weight = random({4, 4}, 5), exponent = torch::tensor(0.3, at::kDouble);
  for (const std::vector<double>& values : {std::vector<double>{3, 2, 1, 0.5}, {2, 2, 1, 1}}) {
    const Tensor m = with_spectrum(values);
    const auto loss_of = [&](const Tensor& p) {
      return Loss([&, p](const Tensor& x) {
        return (keel::spectral(x, [&](const Tensor& l) { return l.pow(p); }).result * weight).sum();
      });
    };
    const Loss own = loss_of(exponent);
    EXPECT_LT(relative_error(gradient(own, m), difference_gradient(own, m)), 1e-9);
    const Loss of_exponent = [&](const Tensor& p) { return loss_of(p)(m); };
    const double step = 1e-5;
    EXPECT_NEAR(
        gradient(of_exponent, exponent).item<double>(),
        ((of_exponent(exponent + step) - of_exponent(exponent - step)) / (2 * step)).item<double>(),
        1e-8);
    const Loss squared = [&](const Tensor& x) {
      return torch::autograd::grad({own(x)}, {x}, {}, true, true)[0].square().sum();
    };
    const Loss named = [&](const Tensor& x) {
      return torch::autograd::grad({(keel::powm(x, 0.3) * weight).sum()}, {x}, {}, true, true)[0]
          .square()
          .sum();
    };
    EXPECT_LT(relative_error(gradient(squared, m), gradient(named, m)), 1e-11);
  }
  const Tensor plain = with_spectrum({4, 1, 0});
  const auto cut = keel::spectral(
      plain, [](const Tensor& l) { return l.rsqrt(); }, LeadingCount{2});
  EXPECT_FALSE(cut.result.requires_grad());
  EXPECT_EQ(cut.kept.item<std::int64_t>(), 2);
  EXPECT_NEAR(cut.result.trace().item<double>(), 1.5, 1e-12);
  const Tensor a = random({5, 3}, 6).requires_grad_(true);
  const Loss shrunk = [](const Tensor& x) {
    return keel::singular(x, [](const Tensor& s) { return (s - 0.5).relu(); }).result.sum();
  };
  const Loss named = [](const Tensor& x) { return keel::soft_threshold(x, 0.5).sum(); };
  EXPECT_LT(relative_error(gradient(shrunk, a), gradient(named, a)), 1e-12);
  EXPECT_TRUE(fails_with(
      "expected a function of your own to map each eigenvalue to one number, (3) to (3), got ()",
      [&] { keel::spectral(plain, [](const Tensor& l) { return l.sum(); }); }));
}

TEST(Generalized, SolvesTwoMatricesAndGivesGradientsToBoth) {
  const Tensor b = with_spectrum({2, 1, 0.5, 0.3}, 7), a = with_spectrum({3, 2, 2, -1}, 8);
  const auto [values, vectors, kept] = keel::generalized_eigh(at::stack({a, 2 * a}), b);
  EXPECT_LT(relative_error(a.matmul(vectors[0]), b.matmul(vectors[0]) * values[0]), 1e-12);
  EXPECT_LT(relative_error(values[1], 2 * values[0]), 1e-12);
  EXPECT_TRUE((kept == 4).all().item<bool>());
  for (const std::optional<double> rtol : {std::optional<double>(), std::optional<double>(1e-9)}) {
    const auto loss = [&](const Tensor& x, const Tensor& y) {
      return keel::generalized_eigh(x, y, Masked{}, rtol).eigenvalues.pow(3).sum() +
             keel::generalized_projector(x, y, LeadingCount{1}, Masked{}, rtol).square().sum();
    };
    const Loss of_a = [&](const Tensor& x) { return loss(x, b); };
    const Loss of_b = [&](const Tensor& y) { return loss(a, y); };
    EXPECT_LT(relative_error(gradient(of_a, a), difference_gradient(of_a, a)), 1e-7);
    EXPECT_LT(relative_error(gradient(of_b, b), difference_gradient(of_b, b)), 1e-7);
  }
  const Tensor singular = with_spectrum({2, 1, 0.5, 0}, 7);
  EXPECT_EQ(keel::generalized_eigh(a, singular, Masked{}, 1e-9).kept.item<std::int64_t>(), 3);
  EXPECT_TRUE(all_nan(keel::generalized_eigh(a, -b).eigenvalues));
  for (const Tensor& wrong : {b[0], b.narrow(0, 0, 1), b.narrow(0, 0, 2).narrow(1, 0, 2)})
    EXPECT_TRUE(
        fails_with("(..., n, n)", [&] { keel::generalized_projector(a, wrong, LeadingCount{1}); }));
}

}  // namespace
}  // namespace keel::test
