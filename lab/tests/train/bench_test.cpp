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
  EXPECT_EQ(timings[0].options.model.norm.kind, "batch");
  EXPECT_EQ(timings[1].options.model.norm.kind, "zca");
  EXPECT_EQ(timings[2].options.model.norm.group_size, 2);
  EXPECT_EQ(timings[0].ratio, 1);
  for (const StepTiming& timing : timings) {
    EXPECT_FALSE(timing.graph);
    EXPECT_GT(timing.least, 0);
    EXPECT_LE(timing.least, timing.milliseconds);
    EXPECT_LE(timing.milliseconds, timing.most);
    EXPECT_NEAR(timing.images_per_second, 16e3 / timing.milliseconds, 1e-6);
  }
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

}  // namespace
}  // namespace keel::lab
