#include "rectangles.h"

namespace keel::test {
namespace {

const std::vector<SingularFunction> kOfSingularValues = {UnitValues{},        SameValues{},
                                                         InverseValues{},     PowerOfValues{0.5},
                                                         PowerOfValues{-1.5}, SoftThreshold{0.6}};

TEST(Singular, GradientsAgreeWithDifferencesAlsoAtRepeatedValues) {
  for (const auto& [m, n] : kShapes)
    for (const auto& values : kSingularValues)
      for (const SingularFunction& function : kOfSingularValues) {
        const Tensor weight = random({m, n}, 7), a = with_singular_values(m, n, values);
        const Loss loss = [&](const Tensor& x) {
          return (keel::singular(x, function).result * weight).sum();
        };
        EXPECT_LT(relative_error(gradient(loss, a), entrywise_differences(loss, a)), 1e-7)
            << to_string(function) << " of " << m << " x " << n << " at " << values;
      }
}

TEST(Singular, ARankCutHasTheWholeGradient) {
  for (const auto& [m, n] : kShapes) {
    const Tensor weight = random({m, n}, 7), a = with_singular_values(m, n, {3, 2, 1.5});
    const Loss loss = [&](const Tensor& x) {
      return (keel::low_rank(x, LeadingCount{2}) * weight).sum() +
             (keel::singular(x, UnitValues{}, LeadingEnergy{0.5}).result * weight).sum();
    };
    EXPECT_LT(relative_error(gradient(loss, a), entrywise_differences(loss, a)), 1e-8);
  }
}

TEST(Singular, NamesAndTexts) {
  const Tensor a = with_singular_values(5, 3, {3, 2, 1});
  EXPECT_LT(relative_error(keel::pinv(a), at::linalg_pinv(a)), 1e-13);
  EXPECT_LT(relative_error(keel::svdvals(keel::soft_threshold(a, 1.5)),
                           torch::tensor({1.5, 0.5, 0.0}, at::kDouble)),
            1e-13);
  for (const SingularFunction& function : kOfSingularValues)
    EXPECT_EQ(to_string(singular_function(to_string(function))), to_string(function));
  EXPECT_EQ(to_string(SingularFunction(InverseValues{1e-6})), "inv(rtol=1e-06)");
  EXPECT_EQ(keel::singular(a, SameValues{}, LeadingEnergy{0.9}).kept.item<std::int64_t>(), 2);
  EXPECT_TRUE(fails_with("keel::low_rank: expected rank full, leading_count or leading_energy",
                         [&] { keel::low_rank(a, Algorithm1{}); }));
}

TEST(Kabsch, FindsAMotionAndItsGradient) {
  const Tensor rotation = keel::special_procrustes(random({2, 3, 3}, 1)).rotation;
  const Tensor p = random({2, 7, 3}, 2), t = random({2, 3}, 3);
  const Tensor q = 2 * p.matmul(rotation.mT()) + t.unsqueeze(-2);
  const auto found = keel::kabsch(p, q, torch::rand({2, 7}, at::kDouble) + 0.1, /*scale=*/true);
  EXPECT_LT(relative_error(found.rotation, rotation), 1e-13);
  EXPECT_LT(relative_error(found.translation, t), 1e-13);
  EXPECT_LT(relative_error(found.scale, torch::full({2}, 2, at::kDouble)), 1e-13);
  const Tensor noisy = q + random({2, 7, 3}, 4);
  const Loss loss = [&](const Tensor& x) {
    const auto r = keel::kabsch(x, noisy);
    return r.rotation.select(-1, 0).sum() + r.translation.pow(3).sum();
  };
  EXPECT_LT(relative_error(gradient(loss, p), entrywise_differences(loss, p)), 1e-8);
}

}  // namespace
}  // namespace keel::test
