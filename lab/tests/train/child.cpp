// Trains into the folder it is given, going on from what it finds there. A line of output for each
// record and checkpoint.

#include <cstdio>
#include <exception>

#include "lab/tests/train/support.h"

namespace {

struct Printer : keel::lab::Observer {
  static void line(const char* what, std::int64_t step) {
    std::printf("%s %lld\n", what, static_cast<long long>(step));
    std::fflush(stdout);
  }
  void on_step(const keel::lab::StepRecord& record) override { line("step", record.step); }
  void on_checkpoint(const std::filesystem::path&, std::int64_t step) override {
    line("checkpoint", step);
  }
};

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) return 2;
  keel::lab::TrainOptions options = keel::lab::test::small_options("zca");
  options.epochs = 4;
  options.threads = 2;  // the same bits, threads or not
  options.run = argv[1];
  options.resume = true;
  options.checkpoint_every = 1;
  Printer printer;
  return keel::lab::train(options, keel::lab::test::small_data(), printer).status == "finished" ? 0
                                                                                                : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
