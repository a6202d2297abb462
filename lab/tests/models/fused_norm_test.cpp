// BatchNorm, addition and ReLU as one operator, against float64. Skipped without a GPU or without the kernels.

#include "lab/models/fused_norm.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <cstdlib>
#include <limits>

#include "lab/models/norm.h"
#include "lab/models/resnet.h"
#include "lab/train/fused_step.h"
#include "lab/train/graph.h"
#include "lab/train/step.h"

namespace keel::lab {
namespace {

using torch::Tensor;

constexpr double kU = 0x1p-24;

class FusedNormTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_cuda()) GTEST_SKIP() << "no CUDA device";
    if (!has_fused_step()) GTEST_SKIP() << "a build without the lab's CUDA kernels";
    torch::manual_seed(11);
  }
};

struct Case {
  std::vector<std::int64_t> shape;
  torch::Dtype type = torch::kBFloat16;
  bool relu = true, residual = true;
  double mean = 0.3, deviation = 1.5;
};

std::ostream& operator<<(std::ostream& stream, const Case& c) {
  return stream << "(" << at::IntArrayRef(c.shape) << ") " << c.type << (c.relu ? " relu" : "")
                << (c.residual ? " residual" : "") << " mean " << c.mean << " deviation "
                << c.deviation;
}

/// The largest relative error of rounding to this type.
double rounding_of(torch::Dtype type) { return type == torch::kBFloat16 ? 0x1p-8 : kU; }

Tensor in_order(const Tensor& x) { return x.contiguous(at::MemoryFormat::ChannelsLast); }

/// Activations whose channels differ in mean and deviation.
Tensor activations(const Case& c) {
  const auto options = torch::dtype(torch::kDouble).device(torch::kCUDA);
  const std::int64_t channels = c.shape[1];
  const Tensor deviations =
      (c.deviation * torch::linspace(0.5, 2, channels, options)).view({-1, 1, 1});
  const Tensor means = (c.mean * torch::linspace(-1, 1, channels, options)).view({-1, 1, 1});
  return in_order((torch::randn(c.shape, options) * deviations + means).to(c.type));
}

BatchNorm norm_of(std::int64_t channels) {
  BatchNorm norm(channels);
  norm->fused = true;
  norm->to(torch::kCUDA);
  const torch::NoGradGuard no_grad;
  norm->weight.copy_(torch::linspace(-1, 2, channels));
  norm->bias.copy_(torch::linspace(1, -1, channels));
  norm->running_mean.fill_(0.25);
  norm->running_var.fill_(4);
  return norm;
}

struct Found {
  Tensor output, dL_dinput, dL_dresidual, dL_dweight, dL_dbias, running_mean, running_var;

  std::vector<Tensor> all() const {
    return {output, dL_dinput, dL_dresidual, dL_dweight, dL_dbias, running_mean, running_var};
  }
};

Found fused(const Case& c, const Tensor& x, const Tensor& r, const Tensor& along) {
  BatchNorm norm = norm_of(c.shape[1]);
  const Tensor input = x.detach().requires_grad_(true);
  const Tensor residual = c.residual ? r.detach().requires_grad_(true) : Tensor();
  EXPECT_TRUE(fuses(*norm, input, residual));
  const Tensor y = fused_norm(*norm, input, residual, c.relu).through;
  y.backward(along);
  EXPECT_EQ(norm->num_batches_tracked.item<std::int64_t>(), 1);
  // No block is waiting: all bits but the highest count waiting blocks.
  EXPECT_EQ(norm->barriers.bitwise_and(0x7fffffff).sum().item<std::int64_t>(), 0);
  return {y.detach(),
          input.grad(),
          c.residual ? residual.grad() : torch::zeros_like(x),
          norm->weight.grad(),
          norm->bias.grad(),
          norm->running_mean.clone(),
          norm->running_var.clone()};
}

/// The largest error relative to its bound, which is given per element.
double worst(const Tensor& found, const Tensor& truth, const Tensor& bound) {
  const Tensor error = (found.to(torch::kDouble) - truth).abs();
  return (error / bound).max().item<double>();
}

Tensor per_channel(const Tensor& x) { return x.view({1, -1, 1, 1}); }
Tensor sum_of(const Tensor& x) { return x.sum({0, 2, 3}); }

void expect_accurate(const Case& c) {
  const Tensor x = activations(c), r = activations(c), along = in_order(torch::randn_like(x));
  const Found found = fused(c, x, r, along);
  ASSERT_TRUE(found.output.is_contiguous(at::MemoryFormat::ChannelsLast)) << c;

  // The formulas in float64. ReLU's mask is taken from the computed output, which is checked separately.
  BatchNorm norm = norm_of(c.shape[1]);
  const Tensor w = norm->weight.detach().to(torch::kDouble),
               b = norm->bias.detach().to(torch::kDouble);
  const double n = double(x.numel() / x.size(1));
  const Tensor x64 = x.to(torch::kDouble), mean = sum_of(x64) / n;
  const Tensor centred = x64 - per_channel(mean), variance = sum_of(centred * centred) / n;
  const Tensor inverse = (variance + norm->eps).rsqrt(), xhat = centred * per_channel(inverse);
  Tensor y = xhat * per_channel(w) + per_channel(b);
  if (c.residual) y = y + r.to(torch::kDouble);
  if (c.relu) y = y.clamp_min(0);
  Tensor g = along.to(torch::kDouble);
  if (c.relu) g = g * (found.output > 0).to(torch::kDouble);
  const Tensor dL_dbias = sum_of(g), dL_dweight = sum_of(g * xhat);
  const Tensor scale = per_channel(w * inverse);
  const Tensor dL_dx = scale * (g - per_channel(dL_dbias / n) - xhat * per_channel(dL_dweight / n));

  // The error bounds of fused_norm.h, propagated.
  const double rows = 32 + n / 4096, unit = rounding_of(c.type);
  // For a channel whose weight and gradients are almost zero.
  const double tiny = 1e-30;
  const Tensor k = (1 + (mean * inverse).square()).sqrt();
  const Tensor variance_k = (variance * (variance + mean.square())).sqrt();
  const Tensor deviation = inverse.reciprocal(), u = kU * (rows + k);
  EXPECT_LT(worst(found.running_mean, 0.9 * 0.25 + 0.1 * mean,
                  0.4 * u * deviation + kU * (1 + mean.abs())),
            1)
      << c;
  EXPECT_LT(worst(found.running_var, 0.9 * 4 + 0.1 * variance * (n / (n - 1)),
                  0.1 * 32 * kU * (rows * variance + variance_k) + 4 * kU * (4 + variance)),
            1)
      << c;
  const Tensor u4 = per_channel(u);
  const Tensor y_bound =
      unit * y.abs() + u4 * (4 + 16 * xhat.abs()) * per_channel(w.abs()) +
      8 * kU *
          (xhat.abs() * per_channel(w.abs()) + per_channel(b.abs()) + r.to(torch::kDouble).abs());
  EXPECT_LT(worst(found.output, y, y_bound + tiny), 1) << c;
  const Tensor g_sum = sum_of(g.abs()), tilt_sum = sum_of((g * xhat).abs());
  EXPECT_LT(worst(found.dL_dbias, dL_dbias, kU * (rows + 32) * g_sum + tiny), 1) << c;
  EXPECT_LT(worst(found.dL_dweight, dL_dweight,
                  kU * (rows + 40) * tilt_sum + u * (4 * g_sum + 16 * dL_dweight.abs()) + tiny),
            1)
      << c;
  const Tensor dL_dx_bound =
      unit * dL_dx.abs() +
      32 * u4 * scale.abs() * (g.abs() + (1 + xhat.abs()) * per_channel((g_sum + tilt_sum) / n));
  EXPECT_LT(worst(found.dL_dinput, dL_dx, dL_dx_bound + tiny), 1) << c;
  if (c.residual) {
    EXPECT_TRUE(found.dL_dresidual.to(torch::kDouble).equal(g)) << c;
  }
}

TEST_F(FusedNormTest, IsBatchNormAdditionAndReluInFloat64) {
  const std::vector<std::vector<std::int64_t>> shapes{
      {1, 64, 5, 7},   {3, 64, 9, 11},    {2, 2048, 4, 4}, {128, 64, 32, 32}, {5, 24, 7, 3},
      {4, 4, 8, 8},    {16, 512, 4, 4},   {1, 8, 1, 2},    {37, 128, 3, 3},   {9, 13, 6, 5},
      {64, 256, 8, 8}, {256, 64, 32, 32}, {2, 1032, 3, 3}, {2, 1061, 3, 3}};
  for (const auto& shape : shapes)
    for (const auto type : {torch::kBFloat16, torch::kFloat})
      for (const bool relu : {false, true})
        for (const bool residual : {false, true}) expect_accurate({shape, type, relu, residual});
}

TEST_F(FusedNormTest, HoldsWhereTheMeanIsManyDeviationsOrTheVarianceTiny) {
  for (const auto type : {torch::kBFloat16, torch::kFloat})
    for (const double mean : {30.0, 1e3})
      for (const double deviation : {1.0, 1e-2})
        expect_accurate({{32, 64, 16, 16}, type, true, true, mean, deviation});
  for (const double deviation : {1e-3, 1e-5, 1e-12})
    expect_accurate({{16, 64, 8, 8}, torch::kFloat, true, false, 0, deviation});
}

TEST_F(FusedNormTest, OfEqualValuesTheOutputIsTheBias) {
  for (const auto type : {torch::kBFloat16, torch::kFloat}) {
    BatchNorm norm = norm_of(64);
    const Tensor x =
        in_order(torch::full({7, 64, 5, 3}, 5.25, torch::dtype(type).device(torch::kCUDA)));
    const Tensor y = fused_norm(*norm, x, {}, /*relu=*/false).through.detach();
    EXPECT_TRUE(y.equal(per_channel(norm->bias.detach().to(type)).expand_as(y)));
  }
}

TEST_F(FusedNormTest, ANumberThatIsNotFiniteStaysInItsChannel) {
  const Case c{{6, 64, 9, 7}};
  const Tensor x = activations(c), r = activations(c), along = in_order(torch::randn_like(x));
  const Found whole = fused(c, x, r, along);
  const Tensor spoilt = x.clone();
  spoilt[2][3][4][5] = std::numeric_limits<double>::quiet_NaN();
  spoilt[0][9][0][0] = std::numeric_limits<double>::infinity();
  spoilt[5][40][8][6] = -std::numeric_limits<double>::infinity();
  const Found found = fused(c, in_order(spoilt), r, along);
  for (std::int64_t channel = 0; channel < 64; ++channel) {
    if (channel == 3 || channel == 9 || channel == 40) {
      EXPECT_TRUE(found.output.select(1, channel).isnan().all().item<bool>()) << channel;
      EXPECT_TRUE(found.dL_dinput.select(1, channel).isnan().all().item<bool>()) << channel;
      continue;
    }
    EXPECT_TRUE(found.output.select(1, channel).equal(whole.output.select(1, channel))) << channel;
    EXPECT_TRUE(found.dL_dinput.select(1, channel).equal(whole.dL_dinput.select(1, channel)));
    EXPECT_TRUE(found.dL_dweight[channel].equal(whole.dL_dweight[channel])) << channel;
    EXPECT_TRUE(found.running_var[channel].equal(whole.running_var[channel])) << channel;
  }
}

/// A smaller card runs fewer blocks with several parts each, and has less shared memory for them.
TEST_F(FusedNormTest, GivesTheSameBitsEachTimeAndOnASmallerCard) {
  for (const auto& shape :
       std::vector<std::vector<std::int64_t>>{{128, 64, 32, 32}, {128, 512, 4, 4}, {9, 13, 6, 5}}) {
    const Case c{shape};
    const Tensor x = activations(c), r = activations(c), along = in_order(torch::randn_like(x));
    const auto whole = fused(c, x, r, along).all();
    const auto expect_same = [&](const std::string& what) {
      const auto again = fused(c, x, r, along).all();
      for (std::size_t i = 0; i < whole.size(); ++i)
        EXPECT_TRUE(whole[i].equal(again[i])) << c << ", " << what << ", " << i;
    };
    for (int i = 0; i < 5; ++i) expect_same("again");
    for (const char* multiprocessors : {"1", "20", "84"})
      for (const char* memory : {"48", "99"}) {
        ::setenv("KEEL_MULTIPROCESSORS", multiprocessors, 1);
        ::setenv("KEEL_SHARED_MEMORY_KB", memory, 1);
        expect_same(std::string(multiprocessors) + " multiprocessors, " + memory + " KB");
        ::unsetenv("KEEL_MULTIPROCESSORS");
        ::unsetenv("KEEL_SHARED_MEMORY_KB");
      }
  }
}

TEST_F(FusedNormTest, TakesActivationsAtAnyAddress) {
  const Case c{{3, 64, 5, 6}};
  const Tensor x = activations(c), r = activations(c), along = in_order(torch::randn_like(x));
  const Tensor memory = torch::zeros({x.numel() + 1}, x.options());
  const Tensor moved = memory.narrow(0, 1, x.numel()).view({3, 5, 6, 64}).permute({0, 3, 1, 2});
  moved.copy_(x);
  const Found one = fused(c, x, r, along), other = fused(c, moved, r, along);
  EXPECT_TRUE(one.output.allclose(other.output, 1e-2, 1e-2));
  EXPECT_TRUE(one.dL_dweight.allclose(other.dL_dweight, 1e-5, 1e-5));
}

TEST_F(FusedNormTest, AGradientInAnyOrderIsTaken) {
  const Case c{{4, 64, 5, 6}, torch::kFloat, true, false};
  const Tensor x = activations(c);
  const auto gradient = [&](bool expanded) {
    BatchNorm norm = norm_of(64);
    const Tensor input = x.detach().requires_grad_(true);
    const Tensor y = fused_norm(*norm, input, {}, true).through;
    const Tensor weights = torch::linspace(-1, 1, 4 * 64, y.options()).view({4, 64});
    if (expanded)
      (y.mean({2, 3}) * weights).sum().backward();
    else
      y.backward(in_order((weights / 30).view({4, 64, 1, 1}).expand_as(y)));
    return input.grad();
  };
  EXPECT_TRUE(gradient(true).allclose(gradient(false), 1e-5, 1e-6));
}

TEST_F(FusedNormTest, AddsTheGradientThatComesPastABlock) {
  for (const auto type : {torch::kBFloat16, torch::kFloat})
    for (const bool relu : {false, true})
      for (const bool residual : {false, true}) {
        const Case c{{16, 64, 8, 8}, type, relu, residual};
        const Tensor x = activations(c), r = activations(c), a = in_order(torch::randn_like(x)),
                     b = in_order(torch::randn_like(x));
        const auto gradients = [&](bool through, bool past, bool added) {
          BatchNorm norm = norm_of(64);
          const Tensor input = x.detach().requires_grad_(true),
                       other = r.detach().requires_grad_(true);
          const Forked y = fused_norm(*norm, input, residual ? other : Tensor(), relu);
          std::vector<Tensor> outputs, along;
          if (through) outputs.push_back(y.through), along.push_back(added ? a + b : a);
          if (past) outputs.push_back(y.past), along.push_back(b);
          torch::autograd::backward(outputs, along);
          return std::vector<Tensor>{input.grad(), residual ? other.grad() : input.grad(),
                                     norm->weight.grad(), norm->bias.grad()};
        };
        const auto both = gradients(true, true, false), sum = gradients(true, false, true);
        const auto alone = gradients(false, true, false), through = gradients(true, false, false);
        for (std::size_t i = 0; i < both.size(); ++i) {
          EXPECT_TRUE(both[i].equal(sum[i])) << c << ", " << i;
          EXPECT_FALSE(both[i].equal(alone[i])) << c << ", " << i;
          EXPECT_FALSE(both[i].equal(through[i])) << c << ", " << i;
        }
      }
}

TEST_F(FusedNormTest, IsCaptured) {
  const DeviceScope scope(torch::kCUDA);
  const Case c{{16, 128, 8, 8}};
  const Tensor x = activations(c), other = activations(c), r = activations(c),
               along = in_order(torch::randn_like(x));
  const Tensor input = x.clone().requires_grad_(true);
  BatchNorm norm = norm_of(128);
  Tensor y, dL_dinput;
  const auto step = [&] {
    input.mutable_grad().reset();
    norm->zero_grad(/*set_to_none=*/true);
    y = fused_norm(*norm, input, r, true).through;
    y.backward(along);
    dL_dinput = input.grad();
  };
  for (int i = 0; i < 3; ++i) step();
  const auto graph = capture(step);
  {
    const torch::NoGradGuard no_grad;
    input.copy_(other);
  }
  for (int i = 0; i < 3; ++i) graph();
  synchronise(torch::kCUDA);
  const Found plain = fused(c, other, r, along);
  EXPECT_TRUE(y.detach().equal(plain.output));
  EXPECT_TRUE(dL_dinput.equal(plain.dL_dinput));
  EXPECT_EQ(norm->num_batches_tracked.item<std::int64_t>(), 6);  // capturing does nothing
}

TEST_F(FusedNormTest, LeavesTheRestToTorch) {
  const Case c{{4, 64, 5, 6}};
  const Tensor x = activations(c);
  BatchNorm norm = norm_of(64);
  EXPECT_TRUE(fuses(*norm, x, {}));
  EXPECT_TRUE(fuses(*norm, x, x));
  EXPECT_FALSE(fuses(*norm, x.contiguous(), {}));
  EXPECT_FALSE(fuses(*norm, x, x.contiguous()));
  EXPECT_FALSE(fuses(*norm, x, x.to(torch::kFloat)));
  EXPECT_FALSE(fuses(*norm, x.to(torch::kDouble), {}));
  EXPECT_FALSE(fuses(*norm, x.to(torch::kHalf), {}));
  EXPECT_FALSE(fuses(*norm, in_order(x.slice(2, 0, 1).slice(3, 0, 1).slice(0, 0, 1)), {}));
  norm->fused = false;
  EXPECT_FALSE(fuses(*norm, x, {}));
  norm->fused = true;
  norm->eval();
  EXPECT_FALSE(fuses(*norm, x, {}));
  norm->train();
  norm->momentum.reset();
  EXPECT_FALSE(fuses(*norm, x, {}));
  norm->momentum = 0.1;
  norm->processes = {0, 2, [](Tensor&) {}};
  EXPECT_FALSE(fuses(*norm, x, {}));
}

struct Pass {
  std::vector<Tensor> values, gradients;  ///< output and running statistics; of the parameters
};

/// Runs a whole network forward and backward, fused or not.
Pass pass_of(const std::string& name, bool fused, torch::Dtype type) {
  torch::manual_seed(5);
  ResNet model(ModelOptions{.name = name, .classes = 10});
  model->to(torch::kCUDA);
  if (type != torch::kFloat) model->to(type);
  model->apply([&](torch::nn::Module& module) {
    if (auto* norm = module.as<BatchNormImpl>()) norm->fused = fused;
  });
  const Tensor images = in_order(torch::randn({32, 3, 32, 32}).to(torch::kCUDA).to(type));
  const Tensor out = model->forward(images);
  out.square().mean().backward();
  Pass pass{model->buffers(), {}};
  pass.values.push_back(out.detach());
  for (const Tensor& parameter : model->parameters()) pass.gradients.push_back(parameter.grad());
  return pass;
}

void expect_as_near(const std::vector<Tensor>& ours, const std::vector<Tensor>& theirs,
                    const std::vector<Tensor>& truth, double besides) {
  for (std::size_t i = 0; i < truth.size(); ++i) {
    const Tensor t = truth[i].to(torch::kDouble);
    const auto error = [&](const Tensor& found) {
      return (found.to(torch::kDouble) - t).norm().item<double>() /
             (t.norm().item<double>() + 1e-30);
    };
    EXPECT_LT(error(ours[i]), 8 * error(theirs[i]) + besides) << i << " " << t.sizes();
  }
}

TEST_F(FusedNormTest, ANetworkComputesWhatItDidToRounding) {
  const Precision without_tf32(TrainOptions{}, torch::kCUDA);
  for (const char* name : {"resnet18", "resnet50"}) {
    SCOPED_TRACE(name);
    const Pass ours = pass_of(name, true, torch::kFloat),
               theirs = pass_of(name, false, torch::kFloat),
               truth = pass_of(name, false, torch::kDouble);
    expect_as_near(ours.values, theirs.values, truth.values, 1e-5);
    // An activation that rounds to the other side of zero adds a term to a sum or removes one. The bias of the last
    // norm has the fewest terms of all parameters: 512 channels of 512 rows, half of them passed by ReLU. If the
    // terms have one size and random signs, the norm of the sums is that of sqrt(512 * 256) terms, and one changed
    // term moves it by 2.8e-3. In float32 about one of the last stage's 1.3 million activations is this close to
    // zero. The bound allows four.
    expect_as_near(ours.gradients, theirs.gradients, truth.gradients, 2 / std::sqrt(512.0 * 256));
  }
}

}  // namespace
}  // namespace keel::lab
