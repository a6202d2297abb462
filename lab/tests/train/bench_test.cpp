#include "lab/train/bench.h"

#include <gtest/gtest.h>

#include "lab/tests/train/support.h"

namespace keel::lab {
namespace {

TEST(BenchTrainTest, MeasuresBatchNormAndTheLayersAskedFor) {
  BenchOptions options;
  options.train = test::small_options();
  options.norms = {NormOptions{.kind = "zca"}, NormOptions{.kind = "pca", .group_size = 2}};
  options.steps = 2;
  options.rounds = 3;
  const auto timings = bench_train(options);
  ASSERT_EQ(timings.size(), 3u);
  EXPECT_EQ(timings[0].name, "batch");
  EXPECT_EQ(timings[1].name, "zca d=4 exact");
  EXPECT_EQ(timings[2].name, "pca d=2 exact 99 %");
  EXPECT_EQ(timings[0].ratio, 1);
  for (const StepTiming& timing : timings) {
    EXPECT_FALSE(timing.graph);
    EXPECT_GT(timing.least, 0);
    EXPECT_LE(timing.least, timing.milliseconds);
    EXPECT_LE(timing.milliseconds, timing.most);
    EXPECT_NEAR(timing.images_per_second, 16e3 / timing.milliseconds, 1e-6);
    ASSERT_TRUE(timing.outside_operators);
    EXPECT_GE(*timing.outside_operators, 0);
    EXPECT_LT(*timing.outside_operators, 1);
  }
}

TEST(BenchTrainTest, MeasuresTheParts) {
  BenchOptions options;
  options.train = test::small_options();
  options.steps = options.rounds = 3;
  const auto parts = bench_parts(options);
  ASSERT_EQ(parts.size(), 5u);
  double sum = 0;
  for (std::size_t i = 0; i < 4; ++i) sum += parts[i].milliseconds;
  EXPECT_EQ(parts[4].name, "whole");
  EXPECT_NEAR(sum, parts[4].milliseconds, 1e-9 * parts[4].milliseconds);
  for (const std::size_t i : {0, 1, 4}) EXPECT_GT(parts[i].milliseconds, 0);
}

TEST(BenchTrainTest, MeasuresAllNorms) {
  BenchOptions options;
  options.train = test::small_options();
  options.train.model.where = "all";
  options.norms = {NormOptions{.kind = "zca", .group_size = 4}, NormOptions{.kind = "zca"}};
  options.steps = options.rounds = 1;
  const auto timings = bench_train(options);
  ASSERT_EQ(timings.size(), 3u);
  EXPECT_EQ(timings[0].name, "batch");
  EXPECT_EQ(timings[1].name, "zca d=4 exact, all norms");
  EXPECT_EQ(timings[2].name, "zca exact, all norms");
  ModelOptions two = options.train.model;
  two.norm = options.norms[0];
  two.where = "bn1,layer1.0.bn1";
  EXPECT_EQ(name_of(two), "zca d=4 exact, 2 norms");
}

TEST(BenchTrainTest, RefusesNothingToMeasure) {
  BenchOptions options;
  options.train = test::small_options();
  options.eager = options.graph = false;
  EXPECT_NE(test::error_of([&] { bench_train(options); }), "no error");
  options.eager = true;
  options.rounds = 0;
  EXPECT_NE(test::error_of([&] { bench_train(options); }), "no error");
}

TEST(BenchTrainTest, RefusesTf32OnACpu) {
  BenchOptions options;
  options.train = test::small_options();
  options.train.device = "cpu";
  options.train.precision = "tf32";
  const std::string expected =
      "keel::lab::bench: expected a CUDA device for precision tf32, got cpu; use float32, or a GPU";
  EXPECT_EQ(test::error_of([&] { bench_train(options); }), expected);
  EXPECT_EQ(test::error_of([&] { bench_parts(options); }), expected);
}

}  // namespace
}  // namespace keel::lab
