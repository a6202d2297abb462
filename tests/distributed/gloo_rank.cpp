// One of several processes. gloo_test.cpp starts it with KEEL_RANK, KEEL_SIZE and KEEL_STORE in its environment and
// the name of a test. The tests begin and end together on all ranks.

#include <gtest/gtest.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <chrono>
#include <cstdlib>

#include "one_process.h"

namespace keel::test {
namespace {

using Gloo = c10d::ProcessGroupGloo;
using namespace std::chrono_literals;

int environment_number(const char* name) { return std::atoi(std::getenv(name)); }
int rank() { return environment_number("KEEL_RANK"); }
int size() { return environment_number("KEEL_SIZE"); }

c10::intrusive_ptr<Gloo> connect(std::chrono::milliseconds timeout = 60s) {
  const auto store = c10::make_intrusive<c10d::FileStore>(std::getenv("KEEL_STORE"), size());
  // All ranks must have started before a timeout begins, however busy the machine is.
  std::vector<std::string> everyone;
  for (int r = 0; r < size(); ++r) everyone.push_back("started_" + std::to_string(r));
  store->set(everyone[std::size_t(rank())], std::vector<std::uint8_t>{1});
  store->wait(everyone, 120s);
  const auto options = Gloo::Options::create(timeout);
  options->devices = {Gloo::createDeviceForHostname("127.0.0.1")};
  return c10::make_intrusive<Gloo>(store, rank(), size(), options);
}

void expect_same_on_all_ranks(Gloo& group, const Tensor& tensor) {
  for (const auto kind : {c10d::ReduceOp::MIN, c10d::ReduceOp::MAX}) {
    Tensors extremes{tensor.clone()};
    c10d::AllreduceOptions options;
    options.reduceOp = kind;
    group.allreduce(extremes, options)->wait();
    EXPECT_TRUE(torch::equal(extremes[0], tensor));
  }
}

TEST(Ranks, EqualOneProcess) {
  const auto group = connect();
  const std::vector<std::vector<Shares>> all{
      {{9}}, {{7, 7}, {5, 9}, {0, 6}}, {{4, 1, 9}, {6, 0, 5}, {0, 0, 8}}};
  for (const Shares& shares : all.at(std::size_t(size()) - 1))
    for (const auto type : {at::kDouble, at::kFloat})
      expect_one_process(group, shares, activations({total(shares), 8, 5, 3}, 1, type),
                         {.group_size = 4}, c10::toString(type));
}

TEST(Ranks, AreCountedByTheLayers) {
  const auto gloo = connect();
  nn::ProcessGroup group = gloo;
  EXPECT_EQ(group.process(), rank());
  EXPECT_EQ(group.size(), size());
  // Exiting while the other rank still connects would be an error there.
  expect_same_on_all_ranks(*gloo, torch::ones({1}));
  group = c10::intrusive_ptr<Gloo>();  // no group means one process
  EXPECT_EQ(group.size(), 1);
}

TEST(Ranks, HoldTheSameStatisticsToTheLastBit) {
  const auto group = connect();
  for (const Layer& layer : layers({.num_features = 24, .group_size = 12, .process_group = group}))
    for (int step = 0; step < 3; ++step) {
      const std::int64_t rows = (rank() + step) % size() * 6;
      const Tensor x = activations({rows, 24, 4, 4}, std::uint64_t(10 * rank() + step), at::kFloat);
      layer(x.requires_grad_(true)).square().sum().backward();
      expect_same_on_all_ranks(*group, statistics_of(layer));
    }
}

/// Rank 1 joins the group and then vanishes.
void expect_error_without_rank_1(const std::function<void()>& vanish) {
  const auto group = connect(5s);
  nn::ZcaWhitening layer({.num_features = 4, .process_group = group});
  const Tensor x = activations({9, 4}, 1, at::kFloat);
  layer->forward(x);
  if (rank() == 1) vanish();
  EXPECT_TRUE(
      fails_with("the sum over 2 processes failed in process 0", [&] { layer->forward(x); }));
}

TEST(Faults, ADeadRankIsAnError) {
  expect_error_without_rank_1([] { _exit(0); });
}

TEST(Faults, AHangingRankIsAnError) {
  expect_error_without_rank_1([] {
    std::this_thread::sleep_for(120s);
    _exit(0);
  });
}

}  // namespace
}  // namespace keel::test

int main(int count, char** arguments) {
  testing::InitGoogleTest(&count, arguments);
  return RUN_ALL_TESTS();
}
