#include "lab/models/baselines.h"

#include <gtest/gtest.h>

#include "lab/train/graph.h"
#include "libtorch/cuda_support.h"
#include "support/errors.h"

namespace keel::test {
namespace {

using lab::has_cuda;
using lab::newton_schulz;
using lab::power_method;
using lab::PowerMethod;
using lab::released_power_iteration;
using lab::released_textbook;
using lab::textbook;

/// sum of v_j v_j^T / sqrt(l_j) over the kept ones, and its slope for a fixed weight.
Tensor inverse_root(const lab::Eigenpairs& pairs) {
  const Tensor lengths = at::where(pairs.kept, pairs.values, at::ones_like(pairs.values)).rsqrt();
  const Tensor scaled = pairs.vectors * (lengths * pairs.kept).unsqueeze(-2);
  return scaled.matmul(pairs.vectors.mT());
}
struct Sloped {
  Tensor value, slope;
};
Sloped sloped(const std::function<Tensor(const Tensor&)>& function, const Tensor& at) {
  const Tensor m = at.detach().clone().requires_grad_(true), value = function(m);
  const Tensor weight = random(value.sizes(), 17);
  return {value.detach(), torch::autograd::grad({(value * weight).sum()}, {m})[0]};
}
void expect_same(const Sloped& ours, const Sloped& truth, double tolerance = 1e-10) {
  EXPECT_LT(relative_error(ours.value, truth.value), tolerance);
  // What is known of a symmetric matrix's slope is its symmetric part.
  EXPECT_LT(relative_error(ours.slope + ours.slope.mT(), truth.slope + truth.slope.mT()),
            tolerance);
}
Tensor first(std::int64_t count, const Tensor& values) {
  return (torch::arange(values.size(-1)) < count).expand_as(values);
}

TEST(PowerMethod, ConvergesOnWellSeparatedSpectra) {
  for (const std::int64_t n : {1, 2, 5, 8}) {
    const Tensor m = torch::stack({geometric_spectrum(n, 0.3, 1), geometric_spectrum(n, 0.2, 2)});
    const auto [values, vectors] = power_method(m, {.iterations = 60});
    const auto [exact_values, exact_vectors] = torch_eigh(m);
    EXPECT_LT(relative_error(values, exact_values), 1e-12);
    const Tensor overlap = exact_vectors.mT().matmul(vectors).abs();
    EXPECT_LT(relative_error(overlap, torch::eye(n, at::kDouble).expand_as(overlap)), 1e-8);
  }
}

TEST(PowerMethod, FindsTheLargestMagnitudeFirst) {
  const auto [values, vectors] = power_method(with_spectrum({1, 0.1, -3}), {.iterations = 60});
  EXPECT_LT(relative_error(values, torch::tensor({-3.0, 1.0, 0.1}, at::kDouble)), 1e-12);
}

TEST(PowerMethod, TheSeedDecidesAndNothingElse) {
  const Tensor a = random({3, 6, 6}, 1), m = a.matmul(a.mT());
  const PowerMethod three_steps{.iterations = 3, .seed = 7};
  const auto vectors_of = [](const Tensor& matrix, const PowerMethod& options) {
    return std::get<1>(power_method(matrix, options));
  };
  const Tensor first = vectors_of(m, three_steps);
  torch::manual_seed(123);
  torch::randn({100});
  EXPECT_TRUE(torch::equal(first, vectors_of(m, three_steps)));
  // Not converged: the answer depends on the start, but not on other matrices of the batch.
  EXPECT_GT(relative_error(vectors_of(m, {.iterations = 3, .seed = 8}), first), 1e-3);
  EXPECT_LT(relative_error(vectors_of(m[1], three_steps), first[1]), 1e-9);
}

TEST(PowerMethod, UnrolledGradientsAgreeWithDifferences) {
  const Tensor m = with_spectrum({2, 1, 0.4, 0.1}), weight = random({4, 4}, 2);
  // With few iterations: the gradient of the unfinished iteration, not of the eigenvectors.
  for (const std::int64_t iterations : {2, 19}) {
    const Loss loss = [&](const Tensor& a) {
      const auto [values, vectors] = power_method(a, {.iterations = iterations});
      return values.pow(2).sum() + (vectors * weight).sum();
    };
    const Tensor ours = gradient(loss, m);
    EXPECT_TRUE(torch::allclose(ours, ours.t()));
    EXPECT_LT(relative_error(ours, difference_gradient(loss, m)), 1e-7) << iterations;
  }
}

TEST(PowerMethod, ShapesAndErrors) {
  for (const std::vector<std::int64_t>& shape :
       {std::vector<std::int64_t>{0, 3, 3}, {1, 1}, {2, 3, 4, 4}}) {
    const auto [values, vectors] = power_method(random_symmetric(shape, 1));
    EXPECT_EQ(vectors.sizes(), shape);
    EXPECT_EQ(values.sizes(), at::IntArrayRef(shape).slice(0, shape.size() - 1));
  }
  EXPECT_TRUE(keel::testing::refuses({"power_method", "iterations"},
                                     [] { power_method(torch::eye(2), {.iterations = 0}); }));
  EXPECT_TRUE(fails_with("keel::lab::power_method: expected (..., n, n), got [2, 3]", [] {
    power_method(torch::zeros({2, 3}));
  }));
}

TEST(PowerMethod, StartsFromTheSameVectorsOnAGpu) {
  if (!has_cuda()) GTEST_SKIP() << "no CUDA device";
  const Tensor x = random({4, 4, 12}, 1);
  expect_twins(
      "power_method",
      [](const Tensors& in) {
        const auto [values, vectors] = power_method(in[0], {5, 3});
        return Tensors{values, vectors};
      },
      {x.matmul(x.mT()) / 12}, 1e4);
}

TEST(Textbook, IsTorchsGradientOfTheKeptColumns) {
  const Tensor m =
      torch::stack({with_spectrum({3, 2, 1, 0.6, 0.1}), geometric_spectrum(5, 0.4, 3)});
  for (const std::int64_t count : {1, 3, 5}) {
    const auto plain = [&](const Tensor& a) {
      const auto [values, vectors] = torch_eigh((a + a.mT()) / 2);
      const Tensor v = vectors.narrow(-1, 0, count), l = values.narrow(-1, 0, count);
      return (v * l.rsqrt().unsqueeze(-2)).matmul(v.mT());
    };
    expect_same(sloped(
                    [&](const Tensor& a) {
                      return inverse_root(textbook(a, [&](auto& l) { return first(count, l); }));
                    },
                    m),
                sloped(plain, m));
  }
}

TEST(Textbook, IsFiniteWhereOnlyDroppedValuesAreEqual) {
  // Turned, the three equal values would differ by rounding.
  const Tensor m = torch::diag(torch::tensor({5.0, 3.0, 1.0, 1.0, 1.0}, at::kDouble));
  const auto slope_of = [&](std::int64_t count) {
    return sloped(
               [&](const Tensor& a) {
                 return inverse_root(textbook(a, [&](auto& l) { return first(count, l); }));
               },
               m)
        .slope;
  };
  // The limit of matrices whose dropped values differ: the kept columns do not see them.
  const Tensor apart = torch::diag(torch::tensor({5.0, 3.0, 1 + 1e-7, 1.0, 1 - 1e-7}, at::kDouble));
  const Tensor truth = sloped(
                           [](const Tensor& a) {
                             const auto [values, vectors] = torch_eigh((a + a.mT()) / 2);
                             const Tensor v = vectors.narrow(-1, 0, 2), l = values.narrow(-1, 0, 2);
                             return (v * l.rsqrt().unsqueeze(-2)).matmul(v.mT());
                           },
                           apart)
                           .slope;
  EXPECT_LT(relative_error(slope_of(2), truth), 1e-6);
  EXPECT_FALSE(slope_of(4).isfinite().all().item<bool>()) << "two kept values are equal";
}

/// The released textbook baseline, one matrix at a time, stopping where it stops.
Tensor stopping_textbook(const Tensor& matrices, double eps, bool slip) {
  std::vector<Tensor> found;
  for (std::int64_t g = 0; g < matrices.size(0); ++g) {
    const auto [u, s, vh] = torch::linalg_svd(matrices[g]);
    std::int64_t count = slip ? 1 : s.size(0);
    for (std::int64_t j = 0; j < s.size(0); ++j)
      if (s[j].item<double>() <= eps) {
        count = j + 1;
        break;
      }
    Tensor sum = torch::zeros_like(matrices[g]);
    for (std::int64_t j = 0; j < count; ++j) sum = sum + torch::outer(vh[j], vh[j]) / s[j].sqrt();
    found.push_back(sum);
  }
  return torch::stack(found);
}

TEST(ReleasedTextbook, StopsAndSlipsAsReleased) {
  const Tensor m = torch::stack({with_spectrum({3, 2, 1, 0.5}), with_spectrum({3, 2, 1e-4, 5e-5}),
                                 with_spectrum({8e-5, 5e-5, 2e-5, 1e-5})});
  const double eps = 1.5e-4;
  for (const std::int64_t slip : {0, 1}) {
    const auto found = released_textbook(m, eps, {.slip = slip});
    const Tensor kept = torch::tensor({slip ? 1 : 4, 3, 1});  // the first value <= eps is kept
    EXPECT_TRUE(torch::equal(found.kept.sum(-1), kept)) << found.kept;
    expect_same(
        sloped([&](const Tensor& a) { return inverse_root(released_textbook(a, eps, {slip})); }, m),
        sloped([&](const Tensor& a) { return stopping_textbook(a, eps, slip != 0); }, m));
  }
}

TEST(ReleasedTextbook, DividesByZeroWhereValuesAreEqualEvenDropped) {
  const Tensor m = torch::diag(torch::tensor({5.0, 1e-4, 1e-5, 1e-5}, at::kDouble)).unsqueeze(0);
  const Sloped found =
      sloped([](const Tensor& a) { return inverse_root(released_textbook(a, 1e-4)); }, m);
  EXPECT_TRUE(found.value.isfinite().all().item<bool>());
  EXPECT_TRUE(found.slope.isnan().any().item<bool>());
  const auto nothing = released_textbook(torch::full({1, 2, 2}, NAN, at::kDouble), 1e-4);
  EXPECT_TRUE(nothing.values.isnan().all().item<bool>());
}

/// One step of power iteration and its gradient as the paper writes them, with the projection as a matrix.
struct PlainStep : torch::autograd::Function<PlainStep> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& m,
                        const Tensor& v) {
    const Tensor next = m.mm(v) / m.mm(v).norm().clamp_min(1e-5);
    context->save_for_backward({m, v, next});
    return next;
  }
  static Tensors backward(torch::autograd::AutogradContext* context, const Tensors& dL_dnext) {
    const auto saved = context->get_saved_variables();
    const Tensor &m = saved[0], &v = saved[1], &next = saved[2];
    const Tensor projection = torch::eye(m.size(0), m.options()) - next.mm(next.t());
    const Tensor part = projection.mm(dL_dnext[0]) / m.mm(v).norm().clamp_min(1e-5);
    return {part.mm(v.t()), m.mm(part)};
  }
};

/// The released power iteration with these starts (n of (G, n, 1)), one matrix at a time. It leaves its loop where it stops.
Tensor stopping_power_iteration(const Tensor& matrices, double eps, std::int64_t iterations,
                                const std::vector<Tensor>& starts,
                                std::vector<std::int64_t>& counts) {
  std::vector<Tensor> found;
  counts.clear();
  for (std::int64_t g = 0; g < matrices.size(0); ++g) {
    Tensor m = matrices[g], sum = torch::zeros_like(m);
    double before = INFINITY;
    counts.push_back(0);
    for (std::size_t i = 0; i < starts.size(); ++i) {
      Tensor v = starts[i][g] / starts[i][g].norm();
      for (std::int64_t k = 0; k < iterations; ++k) v = PlainStep::apply(m, v);
      const Tensor value = m.mm(v).t().mm(v) / v.t().mm(v);
      const double now = value.item<double>();
      if (i > 0 && (now > before || now < eps)) break;
      before = now;
      ++counts.back();
      sum = sum + v.mm(value.rsqrt().mm(v.t()));
      m = m - m.mm(v.mm(v.t()));
    }
    found.push_back(sum);
  }
  return torch::stack(found);
}

TEST(ReleasedPowerIteration, StopsAsReleased) {
  // Far apart; the last below eps; crowded, so that inexact vectors let a value grow; all below eps but one.
  const Tensor m = torch::stack(
      {with_spectrum({3, 1, 0.2, 0.03, 4e-3}), with_spectrum({3, 1, 0.2, 2e-5, 1e-5}),
       with_spectrum({1, 0.99, 0.98, 0.97, 0.96}), with_spectrum({2, 3e-5, 2e-5, 2e-5, 1e-5})});
  const double eps = 1e-4;
  for (const std::uint64_t seed : {1, 2, 3}) {
    torch::manual_seed(seed);
    std::vector<Tensor> starts;
    for (int i = 0; i < 5; ++i) starts.push_back(torch::randn({4, 5, 1}, at::kDouble));
    std::vector<std::int64_t> counts;
    const Sloped truth = sloped(
        [&](const Tensor& a) { return stopping_power_iteration(a, eps, 19, starts, counts); }, m);
    Tensor kept;
    const Sloped ours = sloped(
        [&](const Tensor& a) {
          torch::manual_seed(seed);
          const auto pairs = released_power_iteration(a, eps);
          kept = pairs.kept.sum(-1);
          return inverse_root(pairs);
        },
        m);
    EXPECT_TRUE(torch::equal(kept, torch::tensor(counts))) << kept << torch::tensor(counts);
    EXPECT_EQ(counts[0], 5);
    EXPECT_EQ(counts[1], 3);
    EXPECT_LT(counts[2], 5);
    EXPECT_EQ(counts[3], 1);
    EXPECT_LT(relative_error(ours.value, truth.value), 1e-9);
    EXPECT_LT(relative_error(ours.slope, truth.slope), 1e-9);
  }
}

TEST(ReleasedPowerIteration, GoesOnPastNaNAsReleased) {
  const Tensor m = with_spectrum({2, 0, 0}).unsqueeze(0);  // deflation leaves nothing
  torch::manual_seed(1);
  const Tensor starts = torch::randn({1, 3, 1}, at::kDouble);
  std::vector<std::int64_t> counts;
  const Tensor truth = stopping_power_iteration(m, 1e-4, 19, {starts, starts, starts}, counts);
  EXPECT_EQ(counts[0], 3);
  EXPECT_TRUE(truth.isnan().any().item<bool>());
  const auto found = released_power_iteration(m, 1e-4);
  EXPECT_EQ(found.kept.sum().item<std::int64_t>(), 3);
  EXPECT_TRUE(found.values.isnan().any().item<bool>());
}

TEST(ReleasedPowerIteration, StartsAnewInEveryCall) {
  const Tensor m = with_spectrum({1, 0.99, 0.98}).unsqueeze(0);
  const auto once = [&] { return released_power_iteration(m, 1e-4, {.iterations = 2}).vectors; };
  EXPECT_GT(relative_error(once().abs(), once().abs()), 1e-3);
}

/// IterNorm's iteration as its paper has it, for one matrix.
Tensor plain_newton_schulz(const Tensor& m, int iterations) {
  const Tensor scaled = m / m.trace();
  Tensor p = torch::eye(m.size(0), m.options());
  for (int k = 0; k < iterations; ++k)
    p = (3 * p - torch::linalg_matrix_power(p, 3).mm(scaled)) / 2;
  return p / m.trace().sqrt();
}

TEST(NewtonSchulz, IsTheIterationOfIterNorm) {
  const Tensor m = torch::stack({with_spectrum({3, 1, 0.5, 0.2}), geometric_spectrum(4, 0.5, 2)});
  expect_same(
      sloped([](const Tensor& a) { return newton_schulz(a); }, m),
      sloped(
          [](const Tensor& a) {
            return torch::stack({plain_newton_schulz(a[0], 5), plain_newton_schulz(a[1], 5)});
          },
          m));
  const auto [values, vectors] = torch_eigh(m);
  const Tensor root = (vectors * values.rsqrt().unsqueeze(-2)).matmul(vectors.mT());
  EXPECT_LT(relative_error(newton_schulz(m, {.iterations = 12}), root), 1e-8);  // more are unstable
}

}  // namespace
}  // namespace keel::test
