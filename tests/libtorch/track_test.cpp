// keel::track: how running statistics are written. What they become is in layers_test.cpp.

#include "support.h"

#include <gtest/gtest.h>

namespace keel::test {
namespace {

struct Statistics {
  Tensor mean = torch::zeros({6}), subspace = torch::zeros({2, 3, 3}), variance = torch::ones({6}),
         count = torch::zeros({}, at::kLong);
  Tensor batch_mean = random({6}, 1, at::kFloat), covariance = random({2, 3, 3}, 2, at::kFloat),
         batch_subspace = random({2, 3, 3}, 3, at::kFloat);

  Statistics() { covariance = covariance.matmul(covariance.mT()); }
  void track(const c10::IValue& momentum = 0.25) const {
    call_operator("keel::track", mean, subspace, variance, count, batch_mean, covariance,
                  batch_subspace, momentum, 1e-4);
  }
};

TEST(TrackOperator, HalfStatisticsAreMovedInFloatAndRounded) {
  Statistics exact, half;
  for (Tensor* t : {&half.mean, &half.subspace, &half.variance}) *t = t->to(at::kBFloat16);
  exact.track();
  half.track();
  EXPECT_TRUE(torch::equal(half.mean, exact.mean.to(at::kBFloat16)));
  EXPECT_TRUE(torch::equal(half.subspace, exact.subspace.to(at::kBFloat16)));
  EXPECT_TRUE(torch::equal(half.variance, exact.variance.to(at::kBFloat16)));
  EXPECT_EQ(half.count.item<std::int64_t>(), 1);
}

TEST(TrackOperator, ViewsAreWrittenWhereTheyLie) {
  Statistics plain, strided;
  const Tensor store = torch::zeros({2, 3, 6});
  strided.subspace = store.slice(2, 0, 6, 2);
  plain.track();
  strided.track();
  EXPECT_TRUE(torch::equal(store.slice(2, 0, 6, 2), plain.subspace));
  EXPECT_EQ(store.slice(2, 1, 6, 2).abs().sum().item<float>(), 0);
}

TEST(TrackOperator, AGraphThatSavedThemNotices) {
  Statistics s;
  const Tensor x = torch::ones({6}).requires_grad_(true);
  const Tensor y = x * s.mean;
  s.track();
  EXPECT_TRUE(fails_with("modified by an inplace operation",
                         [&] { torch::autograd::grad({y.sum()}, {x}); }));
}

TEST(TrackOperator, ErrorsNameTheOperatorWhatWasExpectedAndWhatCame) {
  Statistics s;
  s.mean = torch::zeros({5});
  EXPECT_TRUE(
      fails_with("keel::track: expected running_mean of shape (6), got (5)", [&] { s.track(); }));
  s = {};
  s.count = torch::zeros({});
  EXPECT_TRUE(
      fails_with("keel::track: expected num_batches_tracked to be one Long, got () of type "
                 "Float",
                 [&] { s.track(); }));
  s = {};
  s.batch_mean = s.batch_mean.to(at::kDouble);
  EXPECT_TRUE(
      fails_with("keel::track: expected mean of type Float, got Double", [&] { s.track(); }));
  s = {};
  EXPECT_TRUE(fails_with("keel::track: expected a momentum in [0, 1] or none, got 2",
                         [&] { s.track(2.0); }));
  s.subspace.requires_grad_(true);
  EXPECT_TRUE(fails_with("keel::track: expected running statistics that need no gradient",
                         [&] { s.track(); }));
}

}  // namespace
}  // namespace keel::test
