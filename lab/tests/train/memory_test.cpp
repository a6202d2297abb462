#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "lab/tests/train/support.h"
#include "lab/train/trainer.h"

namespace keel::lab {
namespace {

double resident_mib() {
  std::ifstream file("/proc/self/statm");
  double total = 0, resident = 0;
  file >> total >> resident;
  return resident * double(sysconf(_SC_PAGESIZE)) / (1 << 20);
}

struct Scales : Observer {
  std::map<std::int64_t, double> mib;
  void on_step(const StepRecord& record) override { mib[record.step] = resident_mib(); }
};

TEST(MemoryTest, StaysFlatOverAThousandSteps) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer keeps what is freed";
#endif
  const test::TemporaryFolder folder;
  TrainOptions options = test::small_options("zca");
  options.epochs = 200;  // of 6 steps each, evaluation and checkpoint included
  options.log_every = 6;
  options.learning_rate = 0.01;
  options.run = folder.path();
  Scales scales;
  const Result result = train(options, test::small_data(), scales);
  ASSERT_EQ(result.status, "finished");
  ASSERT_EQ(result.steps, 1200);
  // The first steps fill the allocator's pools. A leak of one step's gradients is 20 KiB per step, 20 MiB in all.
  EXPECT_LT(scales.mib.at(1200) - scales.mib.at(198), 1.5);
}

}  // namespace
}  // namespace keel::lab
