// The contract in keel/weight_backward.h, against finite differences of its layer.

#include "keel/weight_backward.h"

#include <gtest/gtest.h>

#include <limits>

#include "keel/error.h"
#include "support/random.h"
#include "support/tolerance.h"

namespace keel::testing {
namespace {

template <typename T>
struct Gradients {
  std::vector<T> weight, mean;
  Batch<T> layer_matrix, matrix;
};

template <typename T>
Gradients<T> backward(const T* weight, const Batch<T>& layer_matrix, const std::vector<T>& sum,
                      const Batch<T>& cross, const Executor& executor = serial()) {
  Gradients<T> g{std::vector<T>(sum.size(), T(77)), std::vector<T>(sum.size(), T(77)),
                 Batch<T>(layer_matrix.batch, layer_matrix.n, T(77)),
                 Batch<T>(layer_matrix.batch, layer_matrix.n, T(77))};
  cpu::weight_backward<T>(weight, layer_matrix.view(), sum.data(), cross.view(), g.weight.data(),
                          g.mean.data(), g.layer_matrix.view(), g.matrix.view(), executor);
  return g;
}

/// One group of d channels and m samples: L = sum U o (diag(w) S (X - mean)).
struct Layer {
  std::int64_t d = 5, m = 7;
  std::vector<double> x = Random(1).normals(d * m), u = Random(2).normals(d * m);
  std::vector<double> weight = Random(3).normals(d), mean = Random(4).normals(d);
  Batch<double> s = random_matrices(1, d, 5);

  double loss() const {
    double total = 0;
    for (std::int64_t k = 0; k < m; ++k)
      for (std::int64_t i = 0; i < d; ++i)
        for (std::int64_t j = 0; j < d; ++j)
          total += u[std::size_t(i * m + k)] * weight[std::size_t(i)] * s(0, i, j) *
                   (x[std::size_t(j * m + k)] - mean[std::size_t(j)]);
    return total;
  }
};

TEST(WeightBackward, IsTheDerivativeOfTheLayer) {
  Layer layer;
  const std::int64_t d = layer.d, m = layer.m;
  std::vector<double> sum(std::size_t(d), 0.0);
  Batch<double> cross(1, d);
  for (std::int64_t i = 0; i < d; ++i)
    for (std::int64_t k = 0; k < m; ++k) {
      const double slope = layer.u[std::size_t(i * m + k)];
      sum[std::size_t(i)] += slope;
      for (std::int64_t j = 0; j < d; ++j)
        cross(0, i, j) += slope * (layer.x[std::size_t(j * m + k)] - layer.mean[std::size_t(j)]);
    }
  const auto g = backward(layer.weight.data(), layer.s, sum, cross);
  const auto slope = [&](double& at) {
    const double old = at, step = 1e-2;  // the loss is linear in each: no truncation
    at = old + step;
    const double above = layer.loss();
    at = old - step;
    const double below = layer.loss();
    at = old;
    return (above - below) / (2 * step);
  };
  for (std::size_t i = 0; i < std::size_t(d); ++i) {
    EXPECT_NEAR(g.weight[i], slope(layer.weight[i]), by_differences(100));
    EXPECT_NEAR(g.mean[i], slope(layer.mean[i]), by_differences(100));
  }
  for (std::size_t k = 0; k < g.layer_matrix.data.size(); ++k)
    EXPECT_NEAR(g.layer_matrix.data[k], slope(layer.s.data[k]), by_differences(100));
  for (std::int64_t i = 0; i < d; ++i)
    for (std::int64_t j = 0; j < d; ++j)
      EXPECT_EQ(g.matrix(0, i, j), layer.weight[std::size_t(i)] * layer.s(0, i, j));
}

TEST(WeightBackward, WithoutAWeightItIsOne) {
  const Batch<float> s = as<float>(random_matrices(3, 6, 1)),
                     p = as<float>(random_matrices(3, 6, 2));
  const std::vector<float> sum = as<float>(Random(3).normals(18)), ones(18, 1.0f);
  const auto without = backward<float>(nullptr, s, sum, p), with = backward(ones.data(), s, sum, p);
  EXPECT_TRUE(bitwise_equal(without.weight, with.weight));
  EXPECT_TRUE(bitwise_equal(without.mean, with.mean));
  EXPECT_TRUE(bitwise_equal(without.layer_matrix.data, p.data));
  EXPECT_TRUE(bitwise_equal(without.matrix.data, s.data));
}

TEST(WeightBackward, GroupsAreTreatedApartAndThreadsDoNotMatter) {
  Batch<double> s = random_matrices(4, 9, 1), p = random_matrices(4, 9, 2);
  const std::vector<double> w = Random(3).normals(36);
  std::vector<double> sum = Random(4).normals(36);
  const auto calm = backward(w.data(), s, sum, p);
  s(1, 2, 3) = sum[12] = p(1, 8, 8) = std::numeric_limits<double>::quiet_NaN();
  const auto wild = backward(w.data(), s, sum, p, threads(3));
  for (const std::int64_t g : {0, 2, 3}) {
    EXPECT_TRUE(bitwise_equal(calm.weight.data() + g * 9, wild.weight.data() + g * 9, 9));
    EXPECT_TRUE(bitwise_equal(calm.mean.data() + g * 9, wild.mean.data() + g * 9, 9));
    EXPECT_TRUE(bitwise_equal(calm.layer_matrix.matrix(g), wild.layer_matrix.matrix(g), 81));
  }
  EXPECT_TRUE(std::isnan(wild.weight[9 + 2]) && std::isnan(wild.mean[9 + 3]));
}

TEST(WeightBackward, EmptyAndMismatchedShapes) {
  backward<float>(nullptr, Batch<float>(0, 4), {}, Batch<float>(0, 4));
  backward<float>(nullptr, Batch<float>(3, 0), {}, Batch<float>(3, 0));
  EXPECT_THROW(
      backward<float>(nullptr, Batch<float>(1, 4), std::vector<float>(4), Batch<float>(1, 3)),
      Error);
}

}  // namespace
}  // namespace keel::testing
