#include "lab/data/data_set.h"

#include <gtest/gtest.h>

namespace keel::lab {
namespace {

using torch::Tensor;

DataSet drawn(std::uint64_t seed, std::int64_t train, std::int64_t test, std::int64_t size = 32) {
  DataOptions options;
  options.seed = seed;
  options.train_limit = train;
  options.test_limit = test;
  options.size = size;
  return load(options);
}

TEST(Synthetic, HasFiveThousandBalancedImages) {
  const DataSet data = load({});
  EXPECT_EQ(data.train.pixels.sizes(), (std::vector<std::int64_t>{5000, 3, 32, 32}));
  EXPECT_EQ(data.test.count(), 1000);
  EXPECT_EQ(data.classes.size(), 10u);
  EXPECT_TRUE((torch::bincount(data.train.labels) == 500).all().item<bool>());
  for (int c = 0; c < 3; ++c) {
    const Tensor channel = data.train.pixels.select(1, c).to(torch::kDouble) / 255;
    EXPECT_NEAR(data.mean[std::size_t(c)], channel.mean().item<double>(), 1e-12);
    EXPECT_NEAR(data.deviation[std::size_t(c)], channel.std(false).item<double>(), 1e-12);
    EXPECT_GT(data.deviation[std::size_t(c)], 0.1);
  }
}

TEST(Synthetic, DependsOnSeedAndNumberAlone) {
  const DataSet some = drawn(3, 40, 20), more = drawn(3, 90, 20), other = drawn(4, 40, 20);
  EXPECT_TRUE(torch::equal(more.train.pixels.narrow(0, 0, 40), some.train.pixels));
  EXPECT_TRUE(torch::equal(more.test.pixels, some.test.pixels));
  EXPECT_FALSE(torch::equal(other.train.pixels, some.train.pixels));
  EXPECT_FALSE(torch::equal(some.train.pixels.narrow(0, 0, 20), some.test.pixels));
}

TEST(Synthetic, DrawsTheSamePicturesAtAnySize) {
  const DataSet small = drawn(5, 20, 10, 32), large = drawn(5, 20, 10, 64);
  const Tensor shrunk = torch::avg_pool2d(large.train.pixels.to(torch::kDouble), 2);
  const Tensor pixels = small.train.pixels.to(torch::kDouble);
  for (int i = 0; i < 20; ++i) {
    const Tensor a = shrunk[i].flatten(), b = pixels[i].flatten();
    const Tensor stacked = torch::stack({a, b});
    EXPECT_GT(torch::corrcoef(stacked)[0][1].item<double>(), 0.5) << i;
  }
}

TEST(Synthetic, IsLearnableAndNotByItsMeans) {
  // Classifying by the nearest class mean of brightness beats chance, but is far from solving the task.
  const DataSet data = load({});
  const auto grey = [](const Images& images) {
    const Tensor flat = images.pixels.to(torch::kFloat).mean(1).flatten(1);
    return (flat - flat.mean(1, true)) / flat.std(1, true, true);
  };
  const Tensor train = grey(data.train), test = grey(data.test);
  std::vector<Tensor> means;
  for (int c = 0; c < 10; ++c) means.push_back(train.index({data.train.labels == c}).mean(0));
  const Tensor nearest = torch::cdist(test, torch::stack(means)).argmin(1);
  const double right = (nearest == data.test.labels).to(torch::kDouble).mean().item<double>();
  EXPECT_GT(right, 0.2);
  EXPECT_LT(right, 0.7);
}

}  // namespace
}  // namespace keel::lab
