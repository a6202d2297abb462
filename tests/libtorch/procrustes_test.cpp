#include "rectangles.h"

namespace keel::test {
namespace {

TEST(Svd, GradientsAreTorchsWhereThoseAreFinite) {
  for (const auto& [m, n] : kShapes) {
    const Tensor a = random({2, m, n}, 3);
    const Tensor of_u = random({2, m, 3}, 4), of_v = random({2, 3, n}, 6);
    const auto loss = [&](const Tensor& u, const Tensor& s, const Tensor& v) {
      return (u.square() * of_u).sum() + (v.square() * of_v).sum() + s.pow(3).sum();
    };
    const Tensor ours = gradient(
        [&](const Tensor& x) {
          const auto [u, s, v] = keel::svd(x);
          return loss(u, s, v);
        },
        a);
    const Tensor theirs = gradient(
        [&](const Tensor& x) {
          const auto [u, s, v] = torch::linalg_svd(x, false);
          return loss(u, s, v);
        },
        a);
    EXPECT_LT(relative_error(ours, theirs), 1e-12) << m << " x " << n;
  }
}

TEST(Procrustes, GradientsAgreeWithDifferencesAlsoAtRepeatedValues) {
  for (const auto& [m, n] : kShapes)
    for (const auto& values : kSingularValues) {
      const Tensor a = with_singular_values(m, n, values), weight = random({m, n}, 7);
      const Tensor of_positive = random({n, n}, 8);
      const Loss loss = [&](const Tensor& x) {
        const auto [factor, positive] = keel::polar(x);
        return (factor * weight).sum() + (positive * of_positive).sum() +
               2 * keel::nuclear_norm(x) + (keel::procrustes(x) * weight).square().sum();
      };
      EXPECT_LT(relative_error(gradient(loss, a), entrywise_differences(loss, a)), 1e-8)
          << m << " x " << n << " at " << values;
    }
}

TEST(Procrustes, RotationsHaveAMargin) {
  const Tensor a = torch::stack({torch::diag(torch::tensor({3.0, 2.0, 1.0})),
                                 torch::diag(torch::tensor({3.0, 2.0, -1.0})),
                                 torch::diag(torch::tensor({3.0, 1.0, -1.0}))})
                       .requires_grad_(true);
  const auto [rotation, margin] = keel::special_procrustes(a);
  EXPECT_TRUE(torch::allclose(margin, torch::tensor({3.0, 1.0, 0.0})));
  EXPECT_FALSE(margin.requires_grad());
  EXPECT_TRUE(torch::allclose(torch::linalg_det(rotation), torch::ones({3})));
  const Tensor grad =
      torch::autograd::grad({(rotation * random({3, 3, 3}, 2, at::kFloat)).sum()}, {a})[0];
  EXPECT_TRUE(all_finite(grad));
  EXPECT_TRUE(fails_with("keel::special_procrustes: expected (..., n, n), got (2, 3)", [] {
    keel::special_procrustes(torch::zeros({2, 3}));
  }));
}

}  // namespace
}  // namespace keel::test
