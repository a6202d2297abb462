// The operators that layers are made of, on CPU against CUDA. Needs a GPU.

#include "cuda_support.h"

#include <gtest/gtest.h>
#include "support/spectrum_zoo.h"

namespace keel::test {
namespace {

struct Shape {
  std::vector<std::int64_t> sizes;
  std::int64_t groups;
};

/// Odd sizes around warps, tiles and 128-bit loads; one sample and none; no position dimension.
const std::vector<Shape> kShapes = {
    {{1, 1}, 1},          {{5, 3}, 3},       {{7, 6, 5}, 2},      {{3, 8, 5, 5}, 8},
    {{2, 10, 7, 7}, 5},   {{300, 8}, 2},     {{4, 20, 33}, 5},    {{9, 64, 4, 4}, 16},
    {{3, 64, 67}, 4},     {{2, 31, 40}, 1},  {{2, 33, 31, 3}, 1}, {{40, 63, 2}, 1},
    {{2, 64, 12, 12}, 1}, {{1, 65, 300}, 1}, {{2, 128, 20}, 1},   {{2, 129, 33}, 1},
    {{1, 200, 45}, 1},    {{530, 48}, 12},   {{8, 64, 32, 32}, 1}};

const std::vector<at::ScalarType> kTypes = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16};

Tensor in_layout(const Tensor& x, bool channels_last) {
  return channels_last ? x.movedim(1, -1).contiguous().movedim(-1, 1) : x;
}

std::string described(const Shape& shape, bool channels_last) {
  std::ostringstream out;
  out << at::IntArrayRef(shape.sizes) << " in " << shape.groups << " groups"
      << (channels_last ? ", channels last" : "");
  return out.str();
}

/// Calls body(name, activations, groups) for every shape and memory order.
template <typename Body>
void for_every_activation(const Body& body) {
  for (const Shape& shape : kShapes)
    for (const bool channels_last : {false, true}) {
      const Tensor x = in_layout(activations(shape.sizes), channels_last);
      body(described(shape, channels_last), x, shape.groups);
    }
}

/// The rounding error that sums over m samples of d channels may have.
double condition(const Tensor& x, std::int64_t groups) {
  return 16 * (std::sqrt(double(x.numel() / x.size(1))) + double(x.size(1) / groups) + 8);
}

TEST(CudaStages, Moments) {
  for_every_activation([](const std::string& name, const Tensor& x, std::int64_t groups) {
    expect_twins(
        "moments " + name,
        [&](const Tensors& in) {
          const auto [mean, covariance] = moments(in[0], groups);
          return Tensors{mean, covariance};
        },
        {x}, condition(x, groups), kTypes);
  });
}

TEST(CudaStages, MomentsFarFromZero) {
  const Tensor x = activations({16, 12, 9, 9}) + 3e4;
  for (const bool channels_last : {false, true}) {
    // Computes the covariance of the rounded float32 inputs, not of the float64 ones.
    const Tensor rounded = in_layout(x.to(at::kFloat).to(at::kDouble), channels_last);
    expect_twins(
        "moments",
        [&](const Tensors& in) { return Tensors{moments(in[0].detach(), 3).covariance}; },
        {rounded}, 200);
  }
}

TEST(CudaStages, Affine) {
  for_every_activation([](const std::string& name, const Tensor& x, std::int64_t groups) {
    const std::int64_t c = x.size(1), d = c / groups;
    const Tensor matrix = random({groups, d, d}, 2), center = random({c}, 3), bias = random({c}, 4);
    expect_twins(
        "affine " + name,
        [](const Tensors& in) { return Tensors{affine(in[0], in[1], in[2], in[3])}; },
        {x, matrix, center, bias}, condition(x, groups), kTypes);
    expect_twins("affine alone " + name,
                 [](const Tensors& in) { return Tensors{affine(in[0], in[1])}; }, {x, matrix},
                 condition(x, groups), {at::kFloat});
  });
}

TEST(CudaStages, AffineOfTransposedMatrices) {
  const Tensor x = activations({3, 12, 10}), matrix = random({2, 6, 6}, 2);
  expect_twins(
      "affine", [](const Tensors& in) { return Tensors{affine(in[0], in[1].mT())}; }, {x, matrix},
      400);
}

TEST(CudaStages, CrossMoments) {
  for_every_activation([](const std::string& name, const Tensor& x, std::int64_t groups) {
    const Tensor left = in_layout(random(x.sizes(), 5), !x.is_contiguous());
    const Tensor center = x.transpose(0, 1).flatten(1).mean(1);
    expect_twins(
        "cross_moments " + name,
        [&](const Tensors& in) {
          return call_operator("keel::cross_moments", in[0], in[1], in[2], groups);
        },
        {left, x, center}, condition(x, groups), kTypes);
  });
}

const std::vector<LayerMap> kMaps = {
    Zca{1e-2, FullRank{}}, Zca{1e-2, LeadingEnergy{0.9}}, keel::PcaDenoising{1e-2, LeadingCount{2}},
    keel::PcaWhitening{1e-2, FullRank{}}, keel::PcaWhitening{1e-2, LeadingCount{2}}};

TEST(CudaStages, LayerMatrixUnderEveryMapAndRule) {
  const std::vector<SpectralRule> rules = {Exact{},  Analytic{},       PowerIteration{},
                                           Taylor{}, Lorentzian{1e-2}, Masked{}};
  for (const std::int64_t d : {1, 2, 3, 4, 8, 15, 16, 17, 32, 33, 64, 65, 100})
    for (const LayerMap& map : kMaps)
      for (const SpectralRule& rule : rules) {
        if (d > 4 && rule.index() % 2 == 1) continue;
        const Tensor covariance = covariance_of(activations({30 * d, 2 * d}, d), 2);
        expect_twins(
            to_string(map) + " " + to_string(rule) + " d = " + std::to_string(d),
            [&](const Tensors& in) {
              const LayerMatrix s = layer_matrix(in[0], map, rule);
              return Tensors{s.matrix, s.values, s.rank};
            },
            {covariance}, 500.0 * double(d + 1));
      }
}

TEST(CudaStages, LayerMatrixOfTheZoo) {
  // Absolute sizes matter to a map with an eps, so those specimens have their own tests.
  for (const std::int64_t d : {1, 2, 5, 16, 33, 64})
    for (const auto& specimen : testing::spectrum_zoo<double>(d)) {
      const std::string& name = specimen.name;
      if (name == "denormal" || name == "tiny" || name == "huge") continue;
      const Tensor m = torch::tensor(specimen.matrix.data).reshape({1, d, d});
      const Tensor covariance = m.matmul(m.mT()) / m.square().sum().clamp_min(1);
      for (const LayerMap& map :
           {LayerMap(Zca{1e-2, FullRank{}}), LayerMap(keel::PcaDenoising{1e-2, FullRank{}})})
        expect_twins(
            to_string(map) + " " + name + " d = " + std::to_string(d),
            [&](const Tensors& in) { return Tensors{layer_matrix(in[0], map).matrix}; },
            {covariance}, 500.0 * double(d + 1));
    }
}

TEST(CudaStages, RunningAverage) {
  for (const auto& [groups, d] :
       {std::pair(1, 1), std::pair(3, 5), std::pair(1, 64), std::pair(2, 150), std::pair(1, 750)})
    for (const bool standardising : {false, true})
      for (const bool averaging : {false, true})
        for (const char* broken : {"nothing", "mean", "matrix"}) {
          Tensor mean = random({groups * d}, 1);
          const Tensor covariance = random({groups, d, d}, 2).square(),
                       s = random({groups, d, d}, 3);
          if (broken == std::string("mean")) mean[groups * d - 1] = INFINITY;
          if (broken == std::string("matrix")) s[groups - 1][d - 1][d - 1] = NAN;
          const auto running_average = [&](const Tensors& in) {
            const torch::NoGradGuard no_grad;
            const Tensor m = mean.to(in[0].options());
            const Tensor count = torch::full({}, 6, in[0].options().dtype(at::kLong));
            Tensors running{in[0].detach().clone(), in[1].detach().clone(), in[2].detach().clone()};
            call_operator("keel::running_average", running[0], running[1],
                          standardising ? c10::IValue(running[2]) : c10::IValue(), count, m, in[3],
                          in[4], averaging ? c10::IValue() : c10::IValue(0.1), 1e-3);
            running.push_back(count);
            return running;
          };
          expect_twins("running_average", running_average,
                       {random({groups * d}, 4), random({groups, d, d}, 5), random({groups * d}, 6),
                        covariance, s},
                       16);
        }
}

/// The kernels of a step may start before the previous one ends. A wait between them changes nothing.
TEST(CudaStages, RunningAverageOfAStepThatStillRuns) {
  for (const auto& [channels, groups] : {std::pair(64, 16), std::pair(64, 4), std::pair(64, 1),
                                         std::pair(2048, 32), std::pair(140, 1)}) {
    const auto options = torch::dtype(at::kFloat).device(at::kCUDA);
    const std::int64_t d = channels / groups;
    Tensors apart{torch::zeros({channels}, options), torch::zeros({groups, d, d}, options),
                  torch::zeros({}, options.dtype(at::kLong))};
    Tensors queued;
    for (const Tensor& statistic : apart) queued.push_back(statistic.clone());
    for (int round = 0; round < 20; ++round) {
      const Tensor x = torch::randn({8, channels, 14, 14}, options).to(at::kBFloat16);
      const auto forward = [&] {
        return call_operator("keel::whiten_forward", x, c10::IValue(), c10::IValue(), groups,
                             "zca(eps=0.001)", "exact", false, c10::IValue());
      };
      const auto average = [&](const Tensors& running, const Tensors& batch) {
        call_operator("keel::running_average", running[0], running[1], c10::IValue(), running[2],
                      batch[1], batch[2], batch[3], 0.25, 1e-3);
      };
      average(queued, forward());
      const Tensors batch = forward();
      torch::cuda::synchronize();
      average(apart, batch);
    }
    for (std::size_t k = 0; k < apart.size(); ++k)
      EXPECT_TRUE(torch::equal(apart[k], queued[k])) << channels << " in " << groups << ", " << k;
  }
}

TEST(CudaStages, NoSamplesGiveNaNAndNoOutput) {
  const Tensor none = torch::zeros({0, 6, 4}, at::kCUDA);
  EXPECT_TRUE(all_nan(moments(none, 2).covariance));
  EXPECT_EQ(affine(none, torch::zeros({2, 3, 3}, at::kCUDA)).numel(), 0);
}

TEST(CudaStages, NaNStaysInItsChannelAndSample) {
  Tensor x = on_cuda(activations({4, 6, 5}, 1, at::kFloat));
  const auto calm = moments(x, 2);
  x[1][4][2] = NAN;
  const auto wild = moments(x, 2);
  EXPECT_TRUE(torch::equal(wild.covariance[0], calm.covariance[0]));
  EXPECT_TRUE(all_nan(wild.covariance[1].select(0, 1)));
  const Tensor y = affine(x, on_cuda(random({2, 3, 3}, 2, at::kFloat)));
  EXPECT_EQ(y.isnan().sum().item<std::int64_t>(), 3);
}

}  // namespace
}  // namespace keel::test
