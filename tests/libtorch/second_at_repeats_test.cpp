// Second derivatives of eigh under its default rule at repeated eigenvalues.

#include "support.h"

#include <gtest/gtest.h>

namespace keel::test {
namespace {

using SpectrumLoss = std::function<Tensor(const Tensor& values, const Tensor& vectors)>;

/// The gradient of <dL/dM, direction>.
Tensor second(const SpectrumLoss& loss, const Tensor& m, const Tensor& direction,
              const GradientRule& rule = Masked{}) {
  const Tensor x = m.clone().requires_grad_(true);
  const auto [values, vectors] = leading_first(x, rule);
  const Tensor g = torch::autograd::grad({loss(values, vectors)}, {x}, {}, true, true)[0];
  return torch::autograd::grad({(g * direction).sum()}, {x}, {}, {}, false, true)[0];
}

/// The same by fourth-order differences. Near m the eigenvalues are distinct, and there a gradient through
/// torch::linalg_eigh is complete.
Tensor second_by_differences(const SpectrumLoss& loss, const Tensor& m, const Tensor& direction) {
  const auto at = [&](double t) {
    return gradient(
        [&](const Tensor& a) {
          const auto [values, vectors] = torch::linalg_eigh(a);
          return loss(values.flip(-1), vectors.flip(-1));
        },
        m + t * direction);
  };
  const Tensor g = testing::central_difference(at, /*step=*/2e-3);
  return (g + g.mT()) / 2;
}

Tensor power_sum(const Tensor& values, double exponent) { return values.pow(exponent).sum(); }

Tensor leading_projector(const Tensor& vectors, std::int64_t count) {
  const Tensor leading = vectors.narrow(-1, 0, count);
  return leading.matmul(leading.mT());
}

TEST(SecondAtRepeats, OfSymmetricFunctionsOfTheEigenvaluesIsExact) {
  // |I + t X|^2 has the second derivative 2 |X|^2 = 4.
  const Tensor x = torch::tensor({{0.0, 1.0}, {1.0, 0.0}}, at::kDouble);
  const auto squares = [](const Tensor& l, const Tensor&) { return power_sum(l, 2); };
  const Tensor curved = (second(squares, torch::eye(2, at::kDouble), x) * x).sum();
  EXPECT_NEAR(curved.item<double>(), 4, 1e-14);

  const auto cubes = [](const Tensor& l, const Tensor&) { return power_sum(l, 3); };
  for (const std::vector<double>& spectrum :
       {std::vector<double>{2, 2, 1}, {1, 1, 1, 1}, {2, 2, 2, 1, 1, 0, -1, -1}}) {
    const Tensor m = with_spectrum(spectrum), k = random_symmetric(m.sizes(), 5);
    const Tensor exact = 3 * (m.matmul(k) + k.matmul(m));
    EXPECT_LT(relative_error(second(cubes, m, k), exact), 1e-13) << spectrum.size();
    const Tensor single = second(cubes, m.to(at::kFloat), k.to(at::kFloat));
    EXPECT_EQ(single.scalar_type(), at::kFloat);
    EXPECT_LT(relative_error(single, exact), 1e-5) << spectrum.size();
  }
}

TEST(SecondAtRepeats, OfLossesThatSeeEigenspacesAsAWholeIsExact) {
  const Tensor weight = random_symmetric({5, 5}, 9), k = random_symmetric({5, 5}, 5);
  for (const std::vector<double>& spectrum :
       {std::vector<double>{2, 2, 1, 1, 0.5}, {3, 3, 1, 1, 1}, {2, 2, 0, 0, 0}}) {
    const Tensor m = with_spectrum(spectrum);
    const Tensor itself = leading_projector(leading_first(m).eigenvectors, 2);
    const auto expect_exact = [&](const char* name, const SpectrumLoss& loss) {
      EXPECT_LT(relative_error(second(loss, m, k), second_by_differences(loss, m, k)), 1e-7)
          << name << " at " << spectrum;
    };
    expect_exact("projector", [&](const Tensor&, const Tensor& v) {
      return (leading_projector(v, 2) * weight).sum();
    });
    expect_exact("its square, and eigenvalues", [&](const Tensor& l, const Tensor& v) {
      return (leading_projector(v, 2) * weight).sum().pow(2) + power_sum(l, 3);
    });
    expect_exact("projector times mean eigenvalue", [&](const Tensor& l, const Tensor& v) {
      return (leading_projector(v, 2) * weight).sum() * l.narrow(-1, 0, 2).mean().pow(2);
    });
    expect_exact("distance from itself, which is stationary", [&](const Tensor&, const Tensor& v) {
      return (leading_projector(v, 2) - itself).pow(2).sum();
    });
  }
}

TEST(SecondAtRepeats, OfLeadingPairsIsExactWhereTheRestRepeats) {
  const Tensor m = with_spectrum({3, 2, 0.5, 0.5, 0.5}), weight = random_symmetric({5, 5}, 9);
  const Tensor k = random_symmetric({5, 5}, 5);
  const SpectrumLoss largest = [](const Tensor& l, const Tensor&) { return l[0].pow(2); };
  EXPECT_LT(relative_error(second(largest, m, k), second_by_differences(largest, m, k)), 1e-8);
  const SpectrumLoss function = [&](const Tensor& l, const Tensor& v) {
    const Tensor leading = v.narrow(-1, 0, 2);
    return (leading.matmul(torch::diag(l.narrow(-1, 0, 2).log())).matmul(leading.mT()) * weight)
        .sum();
  };
  EXPECT_LT(relative_error(second(function, m, k), second_by_differences(function, m, k)), 1e-8);
}

TEST(SecondAtRepeats, IsZeroOrAsBeforeWhereNothingIsLeftOut) {
  const Tensor k = random_symmetric({4, 4}, 5), m = with_spectrum({2, 1, 1, 0.5});
  const auto trace = [](const Tensor& l, const Tensor&) { return l.sum(); };
  EXPECT_LT(second(trace, m, k).abs().max().item<double>(), 1e-14);
  // Along the eigenvectors: no entry of the direction is inside the eigenspace.
  const auto squares = [](const Tensor& l, const Tensor&) { return power_sum(l, 2); };
  const Tensor one = torch::eye(4, at::kDouble);
  EXPECT_LT(relative_error(second(squares, m, one), 2 * one), 1e-14);
  // Each matrix of a batch has its own second derivative.
  const Tensor batch = torch::stack({m, with_spectrum({4, 3, 2, 1}), one});
  const Tensor ks = torch::stack({k, k, k});
  EXPECT_LT(relative_error(second(squares, batch, ks), 2 * ks), 1e-13);
}

TEST(SecondAtRepeats, ReachesTheLossesOwnParameters) {
  const Tensor m = with_spectrum({2, 2, 1}).requires_grad_(true), k = random_symmetric({3, 3}, 5);
  const Tensor scale = torch::tensor(1.5, at::kDouble).requires_grad_(true);
  const Tensor g = torch::autograd::grad({scale * power_sum(leading_first(m).eigenvalues, 3)}, {m},
                                         {}, {}, true)[0];
  const auto both = torch::autograd::grad({(g * k).sum()}, {m, scale});
  const Tensor plain = m.detach();
  EXPECT_LT(relative_error(both[0], 4.5 * (plain.matmul(k) + k.matmul(plain))), 1e-13);
  EXPECT_NEAR(both[1].item<double>(), (3 * plain.matmul(plain) * k).sum().item<double>(), 1e-12);
}

TEST(SecondAtRepeats, OfOtherLossesIsRefusedByName) {
  const Tensor weight = random_symmetric({3, 3}, 9), k = random_symmetric({3, 3}, 5);
  const Tensor m = with_spectrum({2, 2, 1}), one = torch::eye(3, at::kDouble);
  const auto refused = [&](const char* name, const Tensor& at, const SpectrumLoss& loss) {
    EXPECT_TRUE(
        fails_with("keel::eigh: no second derivative under rule masked at repeated "
                   "eigenvalues of a loss that depends on the basis",
                   [&] { second(loss, at, k); }))
        << name;
    EXPECT_TRUE(fails_with("keel::spectral", [&] { second(loss, at, k); })) << name;
  };
  const auto rebuilt = [](const Tensor& l, const Tensor& v) {
    return v.matmul(torch::diag(l)).matmul(v.mT());
  };
  refused("function of the matrix", m,
          [&](const Tensor& l, const Tensor& v) { return (rebuilt(l.log(), v) * weight).sum(); });
  refused("basis", m, [&](const Tensor&, const Tensor& v) { return (v * weight).sum(); });
  // These two losses are stationary in the basis that eigh returns at the identity.
  refused("basis", one, [](const Tensor&, const Tensor& v) { return v[0][0].pow(2); });
  refused("entries of the matrix", one, [&](const Tensor& l, const Tensor& v) {
    const Tensor r = rebuilt(l, v);
    return (r[0][0] - 1) * r[0][1];
  });
  refused("one of two equal eigenvalues", m,
          [](const Tensor& l, const Tensor&) { return l[0].pow(2); });
  // With a wide tolerance, masked pairs are not equal for such a loss.
  EXPECT_TRUE(fails_with("under rule masked(tolerance=0.1) at repeated", [&] {
    second([](const Tensor& l, const Tensor&) { return power_sum(l, 2); },
           with_spectrum({2, 1.9, 1}), k, Masked{0.1});
  }));
}

TEST(SecondAtRepeats, ThirdDerivativesAreRefusedByName) {
  const Tensor d = random_symmetric({3, 3}, 3);
  const auto third = [](const Tensor& m, const Tensor& d) {
    const Tensor x = m.clone().requires_grad_(true);
    const auto step = [&](const Tensor& y, bool graph) {
      return (torch::autograd::grad({y}, {x}, {}, true, graph)[0] * d).sum();
    };
    return step(step(step(power_sum(leading_first(x).eigenvalues, 4), true), true), false);
  };
  EXPECT_TRUE(fails_with("derivative under rule masked at repeated eigenvalues", [&] {
    third(with_spectrum({2, 2, 1}), d);
  }));
  EXPECT_TRUE(
      fails_with("keel::eigh: no third derivative under rule masked at repeated eigenvalues", [&] {
        third(with_spectrum({2, 2, 1}), torch::eye(3, at::kDouble));
      }));
  EXPECT_TRUE(all_finite(third(with_spectrum({2, 1.5, 1}), d)));
}

TEST(SecondAtRepeats, AMatrixMayChangeOnceItIsDecomposed) {
  const Tensor leaf = with_spectrum({2, 2, 1}).requires_grad_(true);
  const Tensor m = leaf * 1, k = random_symmetric({3, 3}, 5), before = m.detach().clone();
  const auto [values, vectors] = leading_first(m);
  m.zero_();
  const Tensor g = torch::autograd::grad({power_sum(values, 3)}, {leaf}, {}, {}, true)[0];
  const Tensor ours = torch::autograd::grad({(g * k).sum()}, {leaf})[0];
  EXPECT_LT(relative_error(ours, 3 * (before.matmul(k) + k.matmul(before))), 1e-13);
}

}  // namespace
}  // namespace keel::test
