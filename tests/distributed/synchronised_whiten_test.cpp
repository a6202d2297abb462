// Layers over several processes, simulated by threads: no network, and every case is cheap.

#include "one_process.h"

#include <gtest/gtest.h>
#include "threads_as_processes.h"

namespace keel::test {
namespace {

void expect_one_process_in_threads(const Shares& shares, const Tensor& whole,
                                   const nn::WhiteningOptions& options, const std::string& what,
                                   const Tolerance& tolerance = {}) {
  const auto size = std::int64_t(shares.size());
  ThreadGroup threads(size);
  as_processes(threads, size, [&](std::int64_t, const nn::ProcessGroup& group) {
    expect_one_process(group, shares, whole, options, what, tolerance);
  });
}

const std::vector<Shares> kUneven{{5, 3}, {4, 1, 7}, {6, 0, 3}, {0, 9}, {1, 1, 1, 6}};

TEST(Synchronised, EqualsOneProcessWhateverTheShares) {
  for (const Shares& shares : kUneven)
    expect_one_process_in_threads(shares, activations({total(shares), 8, 3, 2}), {.group_size = 4},
                                  ::testing::PrintToString(shares));
}

TEST(Synchronised, EqualsOneProcessInEveryShapeAndOrder) {
  const Shares shares{7, 0, 12};
  const nn::WhiteningOptions options{.group_size = 3};
  expect_one_process_in_threads(shares, activations({19, 6}), options, "(N, C)");
  expect_one_process_in_threads(shares, activations({19, 6, 5}), options, "(N, C, L)");
  const Tensor images = activations({19, 6, 3, 4}).contiguous(at::MemoryFormat::ChannelsLast);
  expect_one_process_in_threads(shares, images, options, "channels_last");
}

TEST(Synchronised, EqualsOneProcessWithReluInside) {
  for (const Shares& shares : kUneven)
    expect_one_process_in_threads(shares, activations({total(shares), 8, 3, 2}),
                                  {.group_size = 4, .activation = nn::Activation::relu},
                                  ::testing::PrintToString(shares));
}

TEST(Synchronised, TheGradientOfAResidualIsItsOwn) {
  const Tensor x = activations({9, 8, 3, 2}), past = random(x.sizes(), 8),
               slope = random(x.sizes(), 9);
  const auto run = [&](const nn::ProcessGroup& group, std::int64_t first, std::int64_t count) {
    const Layer layer = layers({.num_features = 8, .group_size = 4, .process_group = group})[0];
    layer->to(at::kDouble);
    const Tensor in = x.narrow(0, first, count).detach().requires_grad_(true),
                 residual = past.narrow(0, first, count).detach().requires_grad_(true);
    const Tensor y = layer->forward_then(nn::Activation::relu, in, residual);
    Tensors all = torch::autograd::grad({y}, {in, residual}, {slope.narrow(0, first, count)});
    all.push_back(y.detach());
    return all;
  };
  const Tensors whole = run({}, 0, 9);
  ThreadGroup threads(2);
  as_processes(threads, 2, [&](std::int64_t rank, const nn::ProcessGroup& group) {
    const std::int64_t first = rank == 0 ? 0 : 5, count = rank == 0 ? 5 : 4;
    const Tensors part = run(group, first, count);
    for (std::size_t k = 0; k < whole.size(); ++k)
      EXPECT_LT(relative_error(part[k], whole[k].narrow(0, first, count)), 1e-10) << k;
  });
}

TEST(Synchronised, EqualsOneProcessUnderEveryRule) {
  const Shares shares{5, 0, 8};
  for (const SpectralRule& rule : std::initializer_list<SpectralRule>{
           Exact{}, Masked{}, PowerIteration{}, Taylor{}, Lorentzian{}})
    expect_one_process_in_threads(shares, activations({13, 6, 2}), {.group_size = 3, .rule = rule},
                                  to_string(rule));
}

TEST(Synchronised, EqualsOneProcessToRoundingInSmallerTypes) {
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf})
    for (const Shares& shares : kUneven)
      expect_one_process_in_threads(shares, activations({total(shares), 8, 5, 5}, 1, type),
                                    {.group_size = 4}, c10::toString(type));
}

TEST(Synchronised, MeansFarFromZeroCostNoAccuracy) {
  const Shares shares{9, 4, 7};
  const Tensor plain = activations({20, 6, 3});
  expect_one_process_in_threads(shares, plain + 1e6, {.group_size = 3}, "float64",
                                {.floor = 1e-8});  // 1e6 times float64's rounding, and some
  expect_one_process_in_threads(shares, (plain + 1e3).to(at::kFloat), {.group_size = 3}, "float32");
}

TEST(Synchronised, StatisticsAreTheSameToTheLastBitEverywhere) {
  for (const auto type : {at::kFloat, at::kDouble}) {
    constexpr std::int64_t kSize = 3;
    ThreadGroup threads(kSize);
    std::vector<std::vector<Tensor>> found(kSize);
    as_processes(threads, kSize, [&](std::int64_t rank, const nn::ProcessGroup& group) {
      for (const Layer& layer :
           layers({.num_features = 8, .group_size = 4, .process_group = group})) {
        if (type == at::kDouble) layer->to(type);
        for (std::int64_t step = 0; step < 3; ++step) {
          const std::int64_t rows = (rank + step) % kSize * 4;  // nothing for one of them
          layer(activations({rows, 8, 3, 3}, std::uint64_t(10 * rank + step), type));
          found[std::size_t(rank)].push_back(statistics_of(layer));
        }
      }
    });
    for (std::size_t i = 0; i < found[0].size(); ++i)
      for (const auto& others : found) EXPECT_TRUE(torch::equal(others.at(i), found[0][i])) << i;
  }
}

TEST(Synchronised, OneSumForwardAndOneBackward) {
  constexpr std::int64_t kSize = 2, kChannels = 12, kGroup = 4;
  for (const auto type : {at::kFloat, at::kDouble}) {
    ThreadGroup threads(kSize);
    as_processes(threads, kSize, [&](std::int64_t rank, const nn::ProcessGroup& group) {
      nn::ZcaWhitening layer(
          {.num_features = kChannels, .group_size = kGroup, .process_group = group});
      layer->to(type);
      const Tensor x = activations({5 + rank, kChannels, 2}, 1, type);
      const Tensor y = layer->forward(x.clone().requires_grad_(true));
      const std::int64_t moments = 1 + kChannels * (1 + kGroup);
      const bool first = type == at::kDouble;  // finds the mean first
      if (rank == 0) {
        EXPECT_EQ(threads.sums, first ? 2 : 1);
        EXPECT_EQ(threads.numbers, moments + (first ? 1 + kChannels : 0));
        EXPECT_EQ(threads.bytes, threads.numbers * 8);
      }
      y.sum().backward();
      if (rank == 0) {
        EXPECT_EQ(threads.sums, first ? 3 : 2);
        EXPECT_EQ(threads.numbers, 2 * moments - 1 + (first ? 1 + kChannels : 0));
      }
      layer->forward(x).sum().backward();  // an input that needs no gradient
      layer->eval();
      layer->forward(x);
      nn::ZcaWhitening untracked({.num_features = kChannels,
                                  .group_size = kGroup,
                                  .track_running_stats = false,
                                  .process_group = group});
      untracked->to(type);
      untracked->eval();
      untracked->forward(x);
      if (rank == 0) {
        EXPECT_EQ(threads.sums, first ? 5 : 3);
      }
    });
  }
}

TEST(Synchronised, AGroupOfOneIsNone) {
  bool asked = false;
  const nn::ProcessGroup lonely(0, 1, [&](Tensor&) { asked = true; });
  const Tensor x = activations({9, 6, 2}, 1, at::kFloat), grad = random(x.sizes(), 2, at::kFloat);
  const auto with = layers({.num_features = 6, .process_group = lonely}),
             without = layers({.num_features = 6});
  for (std::size_t i = 0; i < with.size(); ++i) {
    const Trained a = train(with[i], x, grad), b = train(without[i], x, grad);
    EXPECT_TRUE(torch::equal(a.output, b.output) && torch::equal(a.dL_dinput, b.dL_dinput));
    EXPECT_TRUE(torch::equal(statistics_of(with[i]), statistics_of(without[i])));
  }
  EXPECT_FALSE(asked);
}

TEST(Synchronised, NanAnywhereIsNanEverywhereAndLeavesTheStatistics) {
  constexpr std::int64_t kSize = 3;
  ThreadGroup threads(kSize);
  as_processes(threads, kSize, [&](std::int64_t rank, const nn::ProcessGroup& group) {
    nn::PcaDenoising layer({.num_features = 6, .group_size = 3, .process_group = group});
    layer->forward(activations({8, 6}, std::uint64_t(rank), at::kFloat));
    const Tensor before = layer->running_matrix.clone();
    Tensor x = activations({8, 6}, 9, at::kFloat);
    if (rank == 1) x[2][0] = std::numeric_limits<float>::quiet_NaN();
    const Tensor y = layer->forward(x);
    EXPECT_TRUE(all_nan(y.narrow(1, 0, 3)));
    EXPECT_TRUE(all_finite(y.narrow(1, 3, 3)));
    EXPECT_TRUE(torch::equal(layer->running_matrix, before));
    EXPECT_EQ(layer->num_batches_tracked.item<std::int64_t>(), 1);
  });
}

TEST(Synchronised, TheSamplesOfAllAreCounted) {
  ThreadGroup threads(2);
  as_processes(threads, 2, [&](std::int64_t rank, const nn::ProcessGroup& group) {
    nn::ZcaWhitening layer({.num_features = 2, .process_group = group});
    EXPECT_TRUE(all_finite(layer->forward(activations({1, 2}, std::uint64_t(rank), at::kFloat))));
    EXPECT_TRUE(fails_with("expected more than 1 value per channel when training, got 1 in 2", [&] {
      layer->forward(torch::ones({rank, 2}));
    }));
  });
}

TEST(Synchronised, SecondDerivativesAreRefused) {
  ThreadGroup threads(2);
  as_processes(threads, 2, [&](std::int64_t rank, const nn::ProcessGroup& group) {
    nn::ZcaWhitening layer({.num_features = 4, .process_group = group});
    layer->to(at::kDouble);
    const Tensor x = activations({7, 4}, std::uint64_t(rank)).requires_grad_(true);
    const Tensor grad = torch::autograd::grad({layer->forward(x).sum()}, {x}, {}, true,
                                              /*create_graph=*/true)[0];
    EXPECT_TRUE(fails_with("no second derivative", [&] { grad.pow(2).sum().backward(); }));
  });
}

TEST(Synchronised, AFailedSumSaysWhere) {
  const nn::ProcessGroup broken(1, 4, [](Tensor&) { throw std::runtime_error("cable cut"); });
  nn::ZcaWhitening layer({.num_features = 4, .process_group = broken});
  EXPECT_TRUE(fails_with("the sum over 4 processes failed in process 1", [&] {
    layer->forward(activations({7, 4}, 1, at::kFloat));
  }));
  EXPECT_TRUE(fails_with("cable cut", [&] { layer->forward(activations({7, 4}, 1, at::kFloat)); }));
}

TEST(Synchronised, ClonesAndPrintsWithItsGroup) {
  const nn::ProcessGroup group(1, 4, [](Tensor& t) { t *= 4; });
  nn::ZcaWhitening layer({.num_features = 4, .process_group = group});
  const auto copy = std::dynamic_pointer_cast<nn::ZcaWhiteningImpl>(layer->clone());
  EXPECT_EQ(copy->options.process_group.size(), 4);
  EXPECT_NE(c10::str(layer).find("process_group=process 1 of 4"), std::string::npos);
}

}  // namespace
}  // namespace keel::test
