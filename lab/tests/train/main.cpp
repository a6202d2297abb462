// Runs the tests. If the first argument is a folder, it is a training program to be killed instead: it trains in the
// folder, resumes what is there, and writes a line for each step.

#include <gtest/gtest.h>

#include <cstdio>
#include <exception>

#include "lab/tests/train/support.h"

namespace keel::lab {
namespace {

struct Printer : Observer {
  void on_step(const StepRecord& record) override {
    std::printf("step %lld\n", static_cast<long long>(record.step));
    std::fflush(stdout);
  }
};

int train_into(const char* folder) try {
  TrainOptions options = test::small_options("zca");
  options.epochs = 4;
  options.threads = 2;  // the same bits, threads or not
  options.run = folder;
  options.resume = true;
  options.checkpoint_every = 1;
  Printer printer;
  return train(options, test::small_data(), printer).status == "finished" ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}

}  // namespace
}  // namespace keel::lab

int main(int argc, char** argv) {
  if (argc == 2 && argv[1][0] != '-') return keel::lab::train_into(argv[1]);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
