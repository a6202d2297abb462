// `keel train` over NCCL. One GPU is a group of one process, but --distributed still uses everything: store, Reducer,
// sums, and the captured step with its sums. Skipped without a GPU.

#include "lab/tests/processes/drift.h"

#include <gtest/gtest.h>

namespace keel::test {
namespace {

class NcclTrainTest : public DriftTest {
 protected:
  /// The losses of a run; empty without a GPU.
  std::map<int, double> losses_of(const std::string& name, const std::string& options,
                                  const Program::Environment& set = {}) {
    const auto one = start(kSmall + "--device cuda --deterministic --epochs 3 " + options +
                               " --run " + (folder / name).string(),
                           set);
    const int code = one->wait(300s);
    if (contains(one->log(), "LibTorch sees none") || contains(one->log(), "has no CUDA"))
      return {};
    EXPECT_EQ(code, 0) << one->log();
    if (!set.empty()) {
      EXPECT_TRUE(contains(one->log(), "1 process over nccl")) << one->log();
    }
    return losses(folder / name);
  }
};

TEST_F(NcclTrainTest, AGroupOfOneIsOneProcess) {
  const Program::Environment torchrun{{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}};
  for (const std::string graph : {"--no-graph", "--graph"}) {
    const auto alone = losses_of("alone" + graph, graph);
    if (alone.empty()) GTEST_SKIP() << "no CUDA device";
    const auto through = losses_of("through" + graph, graph + " --distributed", torchrun);
    ASSERT_EQ(alone.size(), 30u);  // a graph is captured after 12
    ASSERT_EQ(through.size(), 30u);
    // The loss is divided by the batch after its sum, not before. That changes its rounding, which 30 steps amplify.
    measure(kSmall + "--device cuda --deterministic --epochs 3 " + graph + " ");
    EXPECT_EQ(truth, alone);
    EXPECT_LT(drift(through), 1) << graph;
  }
}

TEST_F(NcclTrainTest, TheGraphGivesTheNumbersOfThePlainStep) {
  const Program::Environment torchrun{{"RANK", "0"}, {"WORLD_SIZE", "1"}};
  const auto plain = losses_of("plain", "--no-graph --distributed", torchrun);
  if (plain.empty()) GTEST_SKIP() << "no CUDA device";
  const auto captured = losses_of("captured", "--graph --distributed", torchrun);
  EXPECT_EQ(captured, plain);
}

}  // namespace
}  // namespace keel::test
