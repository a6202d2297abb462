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

/// Whether <dL/dM, direction> has no gradient, for this reason.
::testing::AssertionResult refused_second(const Loss& loss, const Tensor& m) {
  const Tensor x = m.clone().requires_grad_(true), k = random_symmetric(m.sizes(), 5);
  const Tensor g = torch::autograd::grad({loss(x)}, {x}, {}, true, true)[0];
  return fails_with("keel::eigh: no second derivative under rule masked at repeated eigenvalues",
                    [&] { torch::autograd::grad({(g * k).sum()}, {x}); });
}

Tensor second_of(const Loss& loss, const Tensor& m, const Tensor& direction) {
  const Tensor x = m.clone().requires_grad_(true);
  const Tensor g = torch::autograd::grad({loss(x)}, {x}, {}, true, true)[0];
  const Tensor of_g = torch::autograd::grad({(g * direction).sum()}, {x}, {}, {}, false, true)[0];
  return (of_g + of_g.mT()) / 2;
}

Tensor rebuilt(const Tensor& m, const std::function<Tensor(const Tensor&)>& f) {
  const auto [values, vectors] = leading_first(m);
  return vectors.matmul(torch::diag(f(values))).matmul(vectors.mT());
}

// Each of these losses is stationary at its matrix, so only the curvature of the loss tells it from one that is smooth there.
TEST(SecondAtRepeats, OfLossesThatAreStationaryIsExactOrRefused) {
  const Tensor one = torch::eye(3, at::kDouble), zero = torch::zeros({3, 3}, at::kDouble);
  const Tensor k = random_symmetric({3, 3}, 5);
  for (const Tensor& m : {one, zero, with_spectrum({2, 2, 1})}) {
    const Tensor weights = torch::tensor({1.0, 3.0, 2.0}, at::kDouble), values = eigvalsh(m);
    EXPECT_TRUE(refused_second(
        [&](const Tensor& x) { return (weights * (eigvalsh(x) - values).square()).sum(); }, m));
  }
  for (const Tensor& m : {one, zero}) {
    const auto distance = [&](const Tensor& x) {
      return 2 * (eigvalsh(x) - m.diagonal()).square().sum();
    };
    EXPECT_LT(relative_error(second_of(distance, m, k), 4 * k), 1e-13);
  }
  for (const Tensor& m : {one, zero}) {
    const auto moved = [&](const Tensor& x) {
      return rebuilt(x, [](const Tensor& l) { return l; }) - m;
    };
    const Tensor second_difference = torch::tensor({1.0, -2.0, 1.0}, at::kDouble);
    const Tensor weights = random_symmetric({3, 3}, 9);
    EXPECT_TRUE(refused_second([&](const Tensor& x) { return moved(x)[0][1].square(); }, m));
    EXPECT_TRUE(refused_second(
        [&](const Tensor& x) { return (moved(x).diagonal() * second_difference).sum().square(); },
        m));
    EXPECT_TRUE(refused_second(
        [&](const Tensor& x) { return (moved(x)[0][0] - moved(x)[1][1]).square(); }, m));
    EXPECT_TRUE(
        refused_second([&](const Tensor& x) { return (moved(x).square() * weights).sum(); }, m));
    EXPECT_LT(relative_error(
                  second_of([&](const Tensor& x) { return moved(x).square().sum(); }, m, k), 2 * k),
              1e-13);
  }
  EXPECT_TRUE(refused_second(
      [](const Tensor& x) {
        return rebuilt(x, [](const Tensor& l) { return (l - 1).square(); })[0][0];
      },
      torch::diag(torch::tensor({1.0, 1.0, 0.0}, at::kDouble))));
  // Exchanging both pairs at once leaves this product as it is, exchanging one does not.
  EXPECT_TRUE(refused_second(
      [](const Tensor& x) {
        const Tensor l = eigvalsh(x);
        return (l[0] - l[1]) * (l[2] - l[3]);
      },
      with_spectrum({2, 2, 1, 1})));
}

// A loss may reach the matrix by itself too, or by another decomposition.
TEST(SecondAtRepeats, OfLossesThatReachTheMatrixTwiceIsExactOrRefused) {
  const Tensor one = torch::eye(2, at::kDouble), m = with_spectrum({3, 3, 1, 1, 1});
  const auto entry = [](const Tensor& x) {
    return rebuilt(x, [](const Tensor& l) { return l; })[0][1];
  };
  const auto determinant = [](const Tensor& a, const Tensor& b) { return (a[0] - 1) * (b[1] - 1); };
  const Tensor k = random_symmetric({2, 2}, 5);
  const Tensor minors = torch::diag(torch::diagonal(k).flip(0)) - k + torch::diag(k.diagonal());
  EXPECT_LT(relative_error(second_of(
                               [&](const Tensor& x) {
                                 const Tensor l = eigvalsh(x);
                                 return determinant(l, l);
                               },
                               one, k),
                           minors),
            1e-14);
  EXPECT_TRUE(
      refused_second([&](const Tensor& x) { return determinant(eigvalsh(x), eigvalsh(x)); }, one));
  EXPECT_TRUE(refused_second([&](const Tensor& x) { return (x.trace() - 2) * entry(x); }, one));
  EXPECT_TRUE(
      refused_second([&](const Tensor& x) { return (eigvalsh(x).sum() - 2) * entry(x); }, one));
  EXPECT_TRUE(
      refused_second([](const Tensor& x) { return (x.trace() - 2) * eigvalsh(x)[0]; }, one));
  EXPECT_TRUE(refused_second([](const Tensor& x) { return x[0][1] * (eigvalsh(x)[0] - 1); }, one));
  EXPECT_TRUE(refused_second(
      [](const Tensor& x) {
        return leading_first(x).eigenvectors[1][0] * leading_first(x).eigenvectors[1][0];
      },
      one));
  // The matrix and what multiplies the loss come from the same tensor.
  EXPECT_TRUE(refused_second(
      [&](const Tensor& y) { return (y.square().sum() - 2) * entry((y + y.mT()) / 2); }, one));

  const Tensor weight = random_symmetric({5, 5}, 9), direction = random_symmetric({5, 5}, 5);
  const auto projected = [&](const Tensor& x) {
    return (leading_projector(leading_first(x).eigenvectors, 2) * weight).sum();
  };
  const auto expect_exact = [&](const char* name, const Loss& loss) {
    const auto at = [&](double t) { return gradient(loss, m + t * direction); };
    const Tensor g = testing::central_difference(at, /*step=*/2e-3);
    EXPECT_LT(relative_error(second_of(loss, m, direction), (g + g.mT()) / 2), 1e-7) << name;
  };
  expect_exact("two symmetric functions",
               [](const Tensor& x) { return power_sum(eigvalsh(x), 3) * eigvalsh(x).log().sum(); });
  expect_exact("projector and values", [&](const Tensor& x) {
    return projected(x) * power_sum(eigvalsh(x), 2) * x.trace();
  });
  expect_exact("two projectors", [&](const Tensor& x) { return projected(x) * projected(x); });
  // What must vanish inside the eigenspace vanishes in every term here.
  expect_exact("what a projector leaves", [](const Tensor& x) {
    const Tensor leading = leading_projector(leading_first(x).eigenvectors, 2);
    return (x - leading.matmul(x)).square().sum();
  });
  expect_exact("of a scaled matrix",
               [](const Tensor& x) { return power_sum(eigvalsh(x / x.trace()), 3) * x.norm(); });
}

TEST(SecondAtRepeats, TangentsByTwoBackwardPassesAreThoseOfTheRule) {
  const Tensor m = torch::eye(3, at::kDouble).requires_grad_(true), k = random_symmetric({3, 3}, 5);
  const auto [values, vectors] = leading_first(m);
  const Tensor v = torch::ones_like(values).requires_grad_(true);
  const Tensor g = torch::autograd::grad({values}, {m}, {v}, true, true)[0];
  const Tensor tangent = torch::autograd::grad({(g * k).sum()}, {v})[0];
  EXPECT_LT(relative_error(tangent, vectors.mT().matmul(k).matmul(vectors).diagonal()), 1e-14);
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
