#include "lab/models/batch_norm.h"

#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/nn/modules/batchnorm.h>

#include "distributed/threads_as_processes.h"
#include "lab/models/resnet.h"
#include "lab/train/graph.h"

namespace keel::lab {
namespace {

using keel::test::as_processes;
using keel::test::ThreadGroup;
using torch::Tensor;

constexpr std::int64_t kChannels = 6;

struct Outcome {
  Tensor output, dL_dinput, dL_dweight, dL_dbias, running;
};

/// Takes two steps, so that running statistics are updated twice, and returns the results of the second.
template <typename Norm>
Outcome two_steps(Norm& norm, const Tensor& input, const Tensor& along) {
  Outcome out;
  for (int step = 0; step < 2; ++step) {
    const Tensor x = (input + step).detach().requires_grad_(true);
    norm->zero_grad();
    const Tensor y = norm->forward(x);
    (y * along).sum().backward();
    out = {y.detach(), x.grad(), norm->weight.grad().clone(), norm->bias.grad().clone(), {}};
  }
  out.running = torch::stack({norm->running_mean, norm->running_var}).clone();
  EXPECT_EQ(norm->num_batches_tracked.template item<std::int64_t>(), 2);
  return out;
}

template <typename Norm>
Norm scrambled(Norm norm, const torch::TensorOptions& options) {
  norm->to(options.device(), torch::typeMetaToScalarType(options.dtype()));
  const torch::NoGradGuard no_grad;
  norm->weight.copy_(torch::linspace(-1, 2, kChannels));
  norm->bias.copy_(torch::linspace(3, 1, kChannels));
  return norm;
}

double error_of(const Tensor& found, const Tensor& truth) {
  return (found - truth).abs().max().template item<double>() /
         truth.abs().max().template item<double>();
}

Tensor images(std::int64_t count, torch::Dtype type) {
  torch::manual_seed(3);
  return (torch::randn({count, kChannels, 5, 4}) *
              torch::linspace(0.1, 4, kChannels).view({-1, 1, 1}) +
          torch::linspace(-3, 8, kChannels).view({-1, 1, 1}))
      .to(type);
}

TEST(BatchNorm, OverSeveralProcessesIsTorchsOverTheWholeBatch) {
  const std::vector<std::int64_t> begin{0, 5, 6, 13};
  for (const auto& [type, bound] : {std::pair(torch::kDouble, 1e-12), {torch::kFloat, 2e-5}})
    for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
      const Tensor x = images(13, type), along = torch::randn_like(x);
      auto whole = scrambled(torch::nn::BatchNorm2d(kChannels), x.options());
      const Outcome truth = two_steps(whole, x, along);
      std::vector<Outcome> parts(3);
      ThreadGroup group(3);
      as_processes(group, 3, [&](std::int64_t rank, const nn::ProcessGroup& member) {
        const auto r = std::size_t(rank);
        auto norm = scrambled(BatchNorm(kChannels), x.options());
        norm->processes = member;
        const auto part = [&](const Tensor& t) {
          return t.narrow(0, begin[r], begin[r + 1] - begin[r]).contiguous(format);
        };
        parts[r] = two_steps(norm, part(x), part(along));
      });
      EXPECT_EQ(group.sums, 4);  // one forward, one backward, in each step
      for (std::size_t r = 0; r < 3; ++r) {
        const auto part = [&](const Tensor& t) { return t.slice(0, begin[r], begin[r + 1]); };
        EXPECT_LT(error_of(parts[r].output, part(truth.output)), bound);
        EXPECT_LT(error_of(parts[r].dL_dinput, part(truth.dL_dinput)), bound);
        EXPECT_LT(error_of(parts[r].running, truth.running), bound);
        EXPECT_TRUE(torch::equal(parts[r].running, parts[0].running));
      }
      EXPECT_LT(error_of(parts[0].dL_dweight + parts[1].dL_dweight + parts[2].dL_dweight,
                         truth.dL_dweight),
                bound);
      EXPECT_LT(error_of(parts[0].dL_dbias + parts[1].dL_dbias + parts[2].dL_dbias, truth.dL_dbias),
                bound);
    }
}

TEST(BatchNorm, AloneAndInEvaluationItIsTorchs) {
  const Tensor x = images(7, torch::kFloat), along = torch::randn_like(x);
  auto theirs = scrambled(torch::nn::BatchNorm2d(kChannels), x.options());
  auto ours = scrambled(BatchNorm(kChannels), x.options());
  const Outcome a = two_steps(theirs, x, along), b = two_steps(ours, x, along);
  EXPECT_TRUE(torch::equal(a.output, b.output));
  EXPECT_TRUE(torch::equal(a.dL_dinput, b.dL_dinput));
  EXPECT_TRUE(torch::equal(a.running, b.running));
  theirs->eval();
  ours->eval();
  ours->processes = {0, 2, [](Tensor&) { FAIL() << "evaluation asks nobody"; }};
  EXPECT_TRUE(torch::equal(theirs(x), ours(x)));
}

TEST(BatchNorm, WithoutAMomentumStatisticsAreThePlainAverage) {
  const Tensor x = images(12, torch::kDouble);
  auto theirs = scrambled(torch::nn::BatchNorm2d(kChannels), x.options());
  auto ours = scrambled(BatchNorm(kChannels), x.options());
  theirs->options.momentum().reset();
  ours->momentum.reset();
  ThreadGroup group(2);
  std::vector<Tensor> means(2), variances(2);
  for (int step = 0; step < 3; ++step) theirs(x * (1 + step)), ours(x * (1 + step));
  as_processes(group, 2, [&](std::int64_t rank, const nn::ProcessGroup& member) {
    auto half = scrambled(BatchNorm(kChannels), x.options());
    half->momentum.reset();
    half->processes = member;
    for (int step = 0; step < 3; ++step) half(x.narrow(0, 6 * rank, 6) * (1 + step));
    means[std::size_t(rank)] = half->running_mean, variances[std::size_t(rank)] = half->running_var;
  });
  EXPECT_TRUE(torch::equal(theirs->running_mean, ours->running_mean));
  EXPECT_TRUE(torch::equal(theirs->running_var, ours->running_var));
  EXPECT_LT(error_of(means[0], theirs->running_mean), 1e-12);
  EXPECT_LT(error_of(variances[1], theirs->running_var), 1e-12);
  ours->eval();
  theirs->eval();
  EXPECT_TRUE(torch::equal(ours(x), theirs(x)));
}

/// A group in which all processes have this process's batch, so a sum over them is a product.
nn::ProcessGroup all_alike(std::int64_t size) {
  return {0, size, [size](Tensor& tensor) { tensor.mul_(double(size)); }};
}

TEST(BatchNorm, HalfActivationsHaveFloatStatistics) {
  std::vector<torch::Device> devices{torch::kCPU};
  if (has_cuda()) devices.push_back(torch::kCUDA);
  for (const auto device : devices) {
    const Tensor x = images(8, torch::kBFloat16).to(device), along = torch::randn_like(x);
    auto whole = scrambled(torch::nn::BatchNorm2d(kChannels),
                           torch::TensorOptions(device).dtype(torch::kFloat));
    auto shared =
        scrambled(BatchNorm(kChannels), torch::TensorOptions(device).dtype(torch::kFloat));
    shared->processes = all_alike(2);
    const Outcome truth = two_steps(whole, x.to(torch::kFloat).repeat({2, 1, 1, 1}),
                                    along.to(torch::kFloat).repeat({2, 1, 1, 1}));
    const Outcome found = two_steps(shared, x, along);
    EXPECT_EQ(found.output.scalar_type(), torch::kBFloat16);
    EXPECT_LT(error_of(found.output.to(torch::kFloat), truth.output.narrow(0, 0, 8)), 1.0 / 128);
    EXPECT_LT(error_of(found.dL_dinput.to(torch::kFloat), truth.dL_dinput.narrow(0, 0, 8)),
              1.0 / 32);
    EXPECT_LT(error_of(found.running, truth.running), 1e-3);
  }
}

TEST(BatchNorm, IsTheCpusTwinOnAGpu) {
  if (!has_cuda()) GTEST_SKIP() << "no CUDA device";
  const Tensor x = images(9, torch::kFloat), along = torch::randn_like(x);
  for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
    auto here = scrambled(BatchNorm(kChannels), x.options());
    auto there = scrambled(BatchNorm(kChannels), x.options().device(torch::kCUDA));
    here->processes = there->processes = all_alike(3);
    const Outcome truth = two_steps(here, x, along);
    const Outcome found = two_steps(there, x.to(torch::kCUDA).contiguous(format),
                                    along.to(torch::kCUDA).contiguous(format));
    EXPECT_LT(error_of(found.output.cpu(), truth.output), 1e-5);
    EXPECT_LT(error_of(found.dL_dinput.cpu(), truth.dL_dinput), 1e-4);
    EXPECT_LT(error_of(found.running.cpu(), truth.running), 1e-5);
  }
}

TEST(BatchNorm, ANetworkSharesAllOfItsNorms) {
  ResNet model(ModelOptions{.name = "resnet_small", .norm = {.kind = "zca"}});
  const nn::ProcessGroup pair = all_alike(2);
  std::int64_t shared = 0, whitening = 0;
  share_batches(*model, pair, /*batch_norms=*/true);
  for (const auto& module : model->modules()) {
    if (const auto* batch = module->as<BatchNormImpl>()) shared += batch->processes.size() == 2;
    if (const auto* layer = module->as<keel::nn::WhiteningImpl>())
      whitening += layer->options.process_group.size() == 2;
    EXPECT_FALSE(module->as<torch::nn::BatchNorm2dImpl>());  // such a norm cannot share batches
  }
  EXPECT_EQ(shared, 8);
  EXPECT_EQ(whitening, 1);
}

}  // namespace
}  // namespace keel::lab
