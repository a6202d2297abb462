#include "lab/train/options.h"

#include <gtest/gtest.h>

#include "lab/tests/train/support.h"

namespace keel::lab {
namespace {

TrainOptions with(const std::string& schedule) {
  TrainOptions options;
  options.schedule = schedule;
  return options;
}

TEST(ScheduleTest, OneCycleIsPyTorchs) {
  // torch.optim.lr_scheduler.OneCycleLR(max_lr=0.1, total_steps=..., pct_start=...)
  const std::vector<double> ten{0.004,
                                0.052,
                                0.1,
                                0.09504846320134738,
                                0.0811745653949763,
                                0.06112620219362893,
                                0.03887419780637107,
                                0.0188258346050237,
                                0.004951936798652629,
                                4e-07};
  const std::vector<double> seven{0.004,
                                  0.037167184270002526,
                                  0.09083281572999748,
                                  0.09504846320134738,
                                  0.06112620219362893,
                                  0.0188258346050237,
                                  4e-07};
  TrainOptions options = with("one_cycle");
  for (std::size_t i = 0; i < ten.size(); ++i)
    EXPECT_NEAR(learning_rate(options, i, 10), ten[i], 1e-15) << i;
  options.warm_up = 0.5;
  for (std::size_t i = 0; i < seven.size(); ++i)
    EXPECT_NEAR(learning_rate(options, i, 7), seven[i], 1e-15) << i;
}

TEST(ScheduleTest, OneCycleIsFiniteForEveryLengthAndWarmUp) {
  TrainOptions options = with("one_cycle");
  for (const double warm_up : {0.0, 0.1, 1.0 / 3, 0.5, 1.0}) {
    options.warm_up = warm_up;
    for (std::int64_t steps = 1; steps < 13; ++steps)
      for (std::int64_t done = 0; done < steps; ++done) {
        const double rate = learning_rate(options, done, steps);
        EXPECT_GE(rate, 0) << steps << " " << done;
        EXPECT_LE(rate, 0.1 * (1 + 1e-12)) << steps << " " << done;
      }
  }
}

TEST(ScheduleTest, PaperDropsAtEpochs100And200And300Of350) {
  const TrainOptions options = with("paper");
  constexpr std::int64_t kPerEpoch = 391, kSteps = 350 * kPerEpoch;
  const auto rate = [&](std::int64_t done) { return learning_rate(options, done, kSteps); };
  EXPECT_DOUBLE_EQ(rate(0), 0.1);
  for (const auto& [epoch, before] : {std::pair(100, 0.1), std::pair(200, 0.01), {300, 0.001}}) {
    EXPECT_DOUBLE_EQ(rate(epoch * kPerEpoch - 1), before);
    EXPECT_DOUBLE_EQ(rate(epoch * kPerEpoch), before / 10);
  }
  EXPECT_DOUBLE_EQ(rate(kSteps - 1), 1e-4);
}

}  // namespace
}  // namespace keel::lab
