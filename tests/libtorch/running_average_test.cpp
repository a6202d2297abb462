// keel::running_average: how running statistics are written. layers_test.cpp tests their values.

#include "support.h"

#include <gtest/gtest.h>

namespace keel::test {
namespace {

struct Statistics {
  Tensor mean = torch::zeros({6}), layer_matrix = torch::zeros({2, 3, 3}),
         variance = torch::ones({6}), count = torch::zeros({}, at::kLong);
  Tensor batch_mean = random({6}, 1, at::kFloat), covariance = random({2, 3, 3}, 2, at::kFloat),
         batch_layer_matrix = random({2, 3, 3}, 3, at::kFloat);

  Statistics() { covariance = covariance.matmul(covariance.mT()); }
  void running_average(const c10::IValue& momentum = 0.25) const {
    call_operator("keel::running_average", mean, layer_matrix, variance, count, batch_mean,
                  covariance, batch_layer_matrix, momentum, 1e-4);
  }
};

TEST(TrackOperator, HalfStatisticsAreMovedInFloatAndRounded) {
  Statistics exact, half;
  for (Tensor* t : {&half.mean, &half.layer_matrix, &half.variance}) *t = t->to(at::kBFloat16);
  exact.running_average();
  half.running_average();
  EXPECT_TRUE(torch::equal(half.mean, exact.mean.to(at::kBFloat16)));
  EXPECT_TRUE(torch::equal(half.layer_matrix, exact.layer_matrix.to(at::kBFloat16)));
  EXPECT_TRUE(torch::equal(half.variance, exact.variance.to(at::kBFloat16)));
  EXPECT_EQ(half.count.item<std::int64_t>(), 1);
}

TEST(TrackOperator, ViewsAreWrittenWhereTheyLie) {
  Statistics plain, strided;
  const Tensor store = torch::zeros({2, 3, 6});
  strided.layer_matrix = store.slice(2, 0, 6, 2);
  plain.running_average();
  strided.running_average();
  EXPECT_TRUE(torch::equal(store.slice(2, 0, 6, 2), plain.layer_matrix));
  EXPECT_EQ(store.slice(2, 1, 6, 2).abs().sum().item<float>(), 0);
}

TEST(TrackOperator, AGraphThatSavedThemNotices) {
  Statistics s;
  const Tensor x = torch::ones({6}).requires_grad_(true);
  const Tensor y = x * s.mean;
  s.running_average();
  EXPECT_TRUE(fails_with("modified by an inplace operation",
                         [&] { torch::autograd::grad({y.sum()}, {x}); }));
}

TEST(TrackOperator, ErrorsNameTheOperatorWhatWasExpectedAndWhatCame) {
  Statistics s;
  s.mean = torch::zeros({5});
  EXPECT_TRUE(fails_with("keel::running_average: expected running_mean of shape (6), got (5)",
                         [&] { s.running_average(); }));
  s = {};
  s.count = torch::zeros({});
  EXPECT_TRUE(fails_with(
      "keel::running_average: expected num_batches_tracked to be one int64, got () of type "
      "float32",
      [&] { s.running_average(); }));
  s = {};
  s.batch_mean = s.batch_mean.to(at::kDouble);
  EXPECT_TRUE(fails_with("keel::running_average: expected mean of type float32, got float64",
                         [&] { s.running_average(); }));
  s = {};
  EXPECT_TRUE(fails_with("keel::running_average: expected a momentum in [0, 1] or none, got 2",
                         [&] { s.running_average(2.0); }));
  s.layer_matrix.requires_grad_(true);
  EXPECT_TRUE(fails_with("keel::running_average: expected running statistics that need no gradient",
                         [&] { s.running_average(); }));
}

}  // namespace
}  // namespace keel::test
