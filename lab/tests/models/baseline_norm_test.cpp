#include "lab/models/baseline_norm.h"

#include <gtest/gtest.h>

#include "distributed/one_process.h"
#include "lab/models/norm.h"
#include "lab/train/graph.h"
#include "libtorch/cuda_support.h"

namespace keel::test {
namespace {

using lab::BaselineNormImpl;
using lab::has_cuda;
using lab::make_norm;
using lab::PowerMethod;

/// The baseline in place of each of the library's layers.
std::vector<Layer> baselines(const nn::WhiteningOptions& options, const PowerMethod& method) {
  std::vector<Layer> all = layers(options);
  for (Layer& layer : all)
    layer.module = std::make_shared<BaselineNormImpl>(options, layer.map, method);
  return all;
}

/// The gradients of a step by plain autograd through torch's eigenvectors.
Trained by_torch(const Layer& layer, const Tensor& x, const Tensor& dL_doutput, std::int64_t kept) {
  const Tensor input = x.detach().clone().requires_grad_(true);
  const Tensor output = plain_layer(layer.map, input, layer->weight, layer->bias, 1, kept);
  const auto grads =
      torch::autograd::grad({output}, {input, layer->weight, layer->bias}, {dL_doutput});
  return {output.detach(), grads[0], grads[1], grads[2]};
}

void expect_same(const Trained& ours, const Trained& truth, double tolerance) {
  EXPECT_LT(relative_error(ours.output, truth.output), tolerance);
  EXPECT_LT(relative_error(ours.dL_dinput, truth.dL_dinput), tolerance);
  EXPECT_LT(relative_error(ours.dL_dweight, truth.dL_dweight), tolerance);
  EXPECT_LT(relative_error(ours.dL_dbias, truth.dL_dbias), tolerance);
}

TEST(BaselineNorm, ConvergesToTheLayersStep) {
  // With eigenvalues this far apart and this many steps, the baseline has converged.
  const Tensor x = activations({9, 3, 5}), dL_doutput = random(x.sizes(), 5);
  const nn::WhiteningOptions options{.num_features = 3, .rank = LeadingCount{2}};
  for (const Layer& layer : baselines(options, {.iterations = 400})) {
    if (layer.name == "pca") continue;  // its signs depend on the random start
    SCOPED_TRACE(layer.name);
    layer->to(at::kDouble);
    scramble(layer);
    expect_same(train(layer, x, dL_doutput), by_torch(layer, x, dL_doutput, 2), 1e-10);
    EXPECT_EQ(layer->kept().item<std::int64_t>(), 2);
  }
}

TEST(BaselineNorm, ObeysEveryRankPolicy) {
  const Tensor x = activations({9, 4, 5});
  const Tensor values = std::get<0>(torch_eigh(covariance_of(x) + 1e-4 * torch::eye(4)));
  const Tensor energy = values.cumsum(-1) / values.sum();
  const double two = (energy[0][0].item<double>() + energy[0][1].item<double>()) / 2;
  for (const auto& [policy, expected] : std::vector<std::pair<RankPolicy, std::int64_t>>{
           {FullRank{}, 4},
           {LeadingCount{3}, 3},
           {LeadingCount{9}, 4},
           {LeadingEnergy{two}, 2},
           {Algorithm1{}, 4},
           {Algorithm1{.energy = two}, 2},
           {Algorithm1{.energy = two, .keep_reaching = false}, 1},
           {Algorithm1{.literal = true}, 4},
           {Algorithm1{.eps = 1e9}, 1}}) {
    const nn::WhiteningOptions options{.num_features = 4, .rank = policy};
    const Layer ours = baselines(options, {.iterations = 300})[0], exact = layers(options)[0];
    ours->to(at::kDouble);
    exact->to(at::kDouble);
    EXPECT_LT(relative_error(ours(x), exact(x)), 1e-10) << to_string(policy);
    EXPECT_EQ(ours->kept().item<std::int64_t>(), expected) << to_string(policy);
    EXPECT_EQ(exact->kept().item<std::int64_t>(), expected) << to_string(policy);
  }
}

TEST(BaselineNorm, AutocastLeavesTheStatisticsAlone) {
  const Tensor x = activations({8, 6, 4, 4}, 3, at::kFloat);
  const Tensor plain = baselines({.num_features = 6}, {})[0](x);
  c10::impl::tls_set_dispatch_key_excluded(c10::DispatchKey::AutocastCPU, false);
  const bool halves = torch::ones({2, 2}).matmul(torch::ones({2, 2})).scalar_type() != at::kFloat;
  const Tensor mixed = baselines({.num_features = 6}, {})[0](x);
  c10::impl::tls_set_dispatch_key_excluded(c10::DispatchKey::AutocastCPU, true);
  EXPECT_TRUE(halves) << "autocast was not on";
  EXPECT_TRUE(torch::equal(plain, mixed));
}

TEST(BaselineNorm, TheTextbookLayersAreTorchsWhereItIsFinite) {
  const Tensor x = activations({9, 4, 5}), dL_doutput = random(x.sizes(), 5);
  const nn::WhiteningOptions options{.num_features = 4, .rank = LeadingCount{2}};
  for (Layer layer : layers(options)) {
    if (layer.name == "pca") continue;  // its signs are the solver's
    SCOPED_TRACE(layer.name);
    layer.module = std::make_shared<BaselineNormImpl>(options, layer.map, lab::Textbook{});
    layer->to(at::kDouble);
    scramble(layer);
    expect_same(train(layer, x, dL_doutput), by_torch(layer, x, dL_doutput, 2), 1e-10);
  }
  // Without the slip, and with no value at eps, the released baseline is the same at full rank.
  const nn::WhiteningOptions all{.num_features = 4, .rank = FullRank{}};
  Layer layer = layers(all)[0];
  layer.module =
      std::make_shared<BaselineNormImpl>(all, layer.map, lab::ReleasedTextbook{.slip = 0});
  layer->to(at::kDouble);
  scramble(layer);
  expect_same(train(layer, x, dL_doutput), by_torch(layer, x, dL_doutput, 4), 1e-10);
}

/// IterNorm over three steps and an evaluation, from its formulas: running mean and matrix with a share of 0.1.
TEST(BaselineNorm, NewtonSchulzIsIterNorm) {
  const auto norm = make_norm({.kind = "zca", .group_size = 3, .rule = "newton_schulz"}, 6);
  norm->to(at::kDouble);
  Tensor mean = torch::zeros({2, 3, 1}, at::kDouble),
         matrix = torch::eye(3, at::kDouble).repeat({2, 1, 1});
  const auto plain = [&](const Tensor& columns, const Tensor& m, const Tensor& w,
                         const Tensor& like) {
    return like_activations(w.matmul(columns - m), like);
  };
  for (const std::uint64_t seed : {1, 2, 3}) {
    const Tensor x = activations({9, 6, 4}, seed), columns = as_columns(x, 2);
    const Tensor now = columns.mean(-1, /*keepdim=*/true);
    const Tensor sigma = covariance_of(x, 2) + 1e-4 * torch::eye(3, at::kDouble);
    const Tensor trace = sigma.diagonal(0, -2, -1).sum(-1).reshape({2, 1, 1});
    Tensor p = torch::eye(3, at::kDouble).repeat({2, 1, 1});
    for (int k = 0; k < 5; ++k)
      p = torch::baddbmm(p, p.bmm(p).bmm(p), sigma / trace, /*beta=*/1.5, /*alpha=*/-0.5);
    const Tensor w = p / trace.sqrt();
    EXPECT_LT(relative_error(lab::apply_norm(*norm, x), plain(columns, now, w, x)), 1e-12);
    mean = 0.9 * mean + 0.1 * now;
    matrix = 0.9 * matrix + 0.1 * w;
  }
  norm->eval();
  const Tensor x = activations({9, 6, 4}, 4);
  EXPECT_LT(relative_error(lab::apply_norm(*norm, x), plain(as_columns(x, 2), mean, matrix, x)),
            1e-12);
}

TEST(BaselineNorm, FoldsAndPrintsItself) {
  const Layer layer = baselines({.num_features = 4}, {.iterations = 7})[0];
  layer(activations({30, 4, 3, 3}, 1, at::kFloat));
  layer->eval();
  const torch::nn::Conv2d before(torch::nn::Conv2dOptions(3, 4, 3));
  const Tensor x = random({2, 3, 8, 8}, 4, at::kFloat);
  EXPECT_LT(relative_error(layer->fold_into(before)->forward(x),
                           layer(torch::nn::Conv2d(before)->forward(x))),
            1e-5);
  const std::string text = c10::str(*layer.module);
  EXPECT_NE(text.find("power_method(iterations=7, seed=0)"), std::string::npos) << text;
  layer->train();
  EXPECT_TRUE(fails_with("more than 1 value per channel", [&] { layer(torch::zeros({1, 4})); }));
  layer->options.process_group = {0, 2, [](Tensor&) {}};
  EXPECT_TRUE(fails_with("expected one process, got 2", [&] { layer(torch::ones({9, 4})); }));
}

TEST(BaselineNorm, IsTheCpusTwinOnAGpu) {
  if (!has_cuda()) GTEST_SKIP() << "no CUDA device";
  const nn::WhiteningOptions options{.num_features = 6, .group_size = 3, .eps = 1e-2};
  const Layer here = baselines(options, {})[0], there = baselines(options, {})[0];
  here->to(at::kDouble);
  there->to(at::kCUDA, at::kDouble);
  expect_twins(
      "power method",
      [&](const Tensors& in) { return Tensors{in[0].is_cuda() ? there(in[0]) : here(in[0])}; },
      {activations({9, 6, 4})}, 1e5, {at::kDouble});
}

}  // namespace
}  // namespace keel::test
