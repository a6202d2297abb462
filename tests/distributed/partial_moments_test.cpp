// The sums that processes add up, against the moments of all samples at once, as a layer computes them.

#include "libtorch/layers_support.h"

#include <gtest/gtest.h>

namespace keel::test {
namespace {

constexpr const char* kPartial = "keel::partial_moments";

Tensor partial(const Tensor& x, std::int64_t groups, const c10::IValue& shift = {}) {
  return call_operator(kPartial, x, groups, shift)[0];
}

/// The mean and covariance of a layer whose processes have these sums, while this process has no samples.
Tensors from_partial(const Tensor& sums, std::int64_t channels, std::int64_t groups,
                     at::ScalarType type, const c10::IValue& shift = {}) {
  const Tensor nothing = torch::empty({0, channels}, sums.options().dtype(type));
  const Tensors found =
      call_operator("keel::whiten_apply", nothing, c10::IValue(), c10::IValue(), groups, sums,
                    shift, "zca", "exact", /*relu=*/false, c10::IValue());
  return {found[1], found[2]};
}

TEST(PartialMoments, AreTheSumsTheySay) {
  const Tensor x = activations({7, 6, 4}), shift = random({6}, 3);
  const Tensor sums = partial(x, 2, shift);
  const Tensor columns = as_columns(x, 2) - shift.reshape({2, 3, 1});
  EXPECT_EQ(sums[0].item<double>(), 28);
  EXPECT_LT(relative_error(sums.narrow(0, 1, 6), columns.sum(-1).reshape({-1})), 1e-13);
  EXPECT_LT(relative_error(sums.narrow(0, 7, 18), columns.matmul(columns.mT()).reshape({-1})),
            1e-13);
}

TEST(PartialMoments, AddUpToTheMomentsOfAll) {
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    const Tensor x = activations({11, 6, 3, 2}, 1, type), shift = random({6}, 3);
    const auto moments = keel::moments(x, 2);
    const auto statistics = moments.mean.scalar_type();
    for (const c10::IValue& about : {c10::IValue(), c10::IValue(shift)}) {
      Tensor sums = partial(x.narrow(0, 0, 5), 2, about);
      for (const auto& [begin, rows] : {std::pair(5, 0), std::pair(5, 6)})
        sums = sums + partial(x.narrow(0, begin, rows), 2, about);
      const Tensors found = from_partial(sums, 6, 2, type, about);
      const double tolerance = statistics == at::kDouble ? 1e-13 : 1e-6;
      EXPECT_EQ(found[0].scalar_type(), statistics);
      EXPECT_LT(relative_error(found[0], moments.mean), tolerance);
      EXPECT_LT(relative_error(found[1], moments.covariance), tolerance);
      EXPECT_TRUE(torch::equal(found[1], found[1].mT()));
    }
  }
}

TEST(PartialMoments, ConstantsHaveNoVariance) {
  const Tensor x = torch::full({9, 3}, 1.0f / 3) * torch::tensor({1.0f, 1000.0f, 1e-20f});
  const Tensor variance = from_partial(partial(x, 1), 3, 1, at::kDouble)[1].diagonal(0, -2, -1)[0];
  const Tensor bound = 4 * 0x1p-53 * x[0].to(at::kDouble).square();
  EXPECT_TRUE(((variance >= 0) & (variance <= bound)).all().item<bool>()) << variance;
}

TEST(PartialMoments, NothingAtAll) {
  const Tensor none = partial(torch::empty({0, 6, 3}), 2);
  EXPECT_TRUE(torch::equal(none, torch::zeros({1 + 6 + 18}, at::kDouble)));
  const Tensors found = from_partial(none, 6, 2, at::kFloat);
  EXPECT_TRUE(all_nan(found[0]) && all_nan(found[1]));
  EXPECT_EQ(partial(torch::empty({5, 0}), 1).sizes(), at::IntArrayRef{1});
}

TEST(PartialMoments, ShapesWithoutDataAndDerivatives) {
  const auto meta = torch::TensorOptions(at::kMeta);
  const Tensor sums = partial(torch::empty({5, 6, 3}, meta), 2);
  EXPECT_EQ(sums.numel(), 25);
  EXPECT_EQ(sums.scalar_type(), at::kDouble);
  EXPECT_EQ(from_partial(sums, 6, 2, at::kFloat)[1].sizes(), at::IntArrayRef({2, 3, 3}));
  const Tensor x = activations({5, 6}).requires_grad_(true);
  EXPECT_TRUE(
      fails_with("keel::partial_moments: no derivative", [&] { partial(x, 1).sum().backward(); }));
}

TEST(PartialMoments, ErrorsSayWhatCame) {
  EXPECT_TRUE(fails_with("expected shift with one number per channel of (5, 6), got (4)", [] {
    partial(torch::ones({5, 6}), 1, torch::ones({4}));
  }));
  EXPECT_TRUE(fails_with("expected sums (25) of type float64, got (24) of type float64",
                         [] { from_partial(torch::ones({24}, at::kDouble), 6, 2, at::kFloat); }));
  EXPECT_TRUE(fails_with("got 4 groups of 6 channels",
                         [] { from_partial(torch::ones({24}, at::kDouble), 6, 4, at::kFloat); }));
}

}  // namespace
}  // namespace keel::test
