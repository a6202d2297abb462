// The contract in keel/svd.h, on the GPU. Needs a GPU.

#include <gtest/gtest.h>

#include <limits>

#include "keel/error.h"
#include "on_device.h"
#include "support/svd_results.h"

namespace keel::testing {
namespace {

/// Poisons the outputs, so that missing writes show.
template <typename T>
struct SvdProblem {
  std::int64_t batch, m, n, k = std::min(m, n);
  OnDevice<T> matrices;
  OnDevice<T> values{std::vector<T>(std::size_t(batch * k), T(77))};
  OnDevice<T> left{std::vector<T>(std::size_t(batch * m * k), T(77))};
  OnDevice<T> right{std::vector<T>(std::size_t(batch * k * n), T(77))};
  OnDevice<SvdStatus> status{std::vector<SvdStatus>(std::size_t(batch), SvdStatus(9))};

  static std::vector<T> joined(const std::vector<Rectangle<T>>& all) {
    std::vector<T> data;
    for (const auto& each : all) data.insert(data.end(), each.data.begin(), each.data.end());
    return data;
  }
  explicit SvdProblem(const std::vector<Rectangle<T>>& all)
      : batch(std::int64_t(all.size())), m(all[0].rows), n(all[0].columns), matrices(joined(all)) {}
  void queue(const Stream& stream = {}) {
    cuda::svd<T>(contiguous<const T>(matrices.data(), batch, m, n), values.data(),
                 contiguous(left.data(), batch, m, k), contiguous(right.data(), batch, k, n),
                 status.data(), stream);
  }
  Factors<T> solved() {
    Factors<T> f(batch, m, n);
    f.values = values.back();
    f.left = left.back();
    f.right = right.back();
    f.status = status.back();
    return f;
  }
};

template <typename T>
Factors<T> decompose_on_device(const std::vector<Rectangle<T>>& all) {
  SvdProblem<T> problem(all);
  problem.queue();
  return problem.solved();
}

template <typename T>
class CudaSvd : public ::testing::Test {};
using CudaSvdTypes = ::testing::Types<float, double>;
TYPED_TEST_SUITE(CudaSvd, CudaSvdTypes);

using Shapes = std::vector<std::pair<std::int64_t, std::int64_t>>;
const Shapes kSmallShapes = {{1, 1},   {1, 4},   {4, 1},   {2, 3},   {3, 3},   {4, 4},
                             {4, 2},   {5, 1},   {1, 9},   {5, 5},   {5, 3},   {3, 7},
                             {8, 8},   {9, 9},   {16, 16}, {17, 17}, {60, 3},  {3, 60},
                             {300, 3}, {17, 33}, {32, 32}, {33, 33}, {65, 40}, {64, 64}};
const Shapes kLargeShapes = {{97, 97},   {128, 128},  {512, 64},  {64, 512}, {129, 129}, {200, 150},
                             {1500, 12}, {256, 256},  {90, 700},  {9000, 3}, {3, 9001},  {7001, 16},
                             {16, 7000}, {20000, 16}, {3000, 40}, {64, 3001}};
// Those that cuSOLVER gets if products of matrices do not solve them.
const Shapes kLargestShapes = {{513, 513}, {700, 520}, {520, 1100}};

TYPED_TEST(CudaSvd, TheZooInEveryShape) {
  using T = TypeParam;
  for (const auto& [m, n] : kSmallShapes) {
    std::vector<Rectangle<T>> all;
    for (const auto& each : rectangle_zoo(m, n)) all.push_back(as<T>(each.matrix));
    const Factors<T> f = decompose_on_device(all);
    for (std::size_t b = 0; b < all.size(); ++b) {
      SCOPED_TRACE(rectangle_zoo(m, n)[b].name + ", " + std::to_string(m) + " x " +
                   std::to_string(n));
      expect_decomposition(all[b], f, std::int64_t(b));
    }
  }
}

TYPED_TEST(CudaSvd, LargeShapes) {
  using T = TypeParam;
  Shapes shapes = kLargeShapes;
  shapes.insert(shapes.end(), kLargestShapes.begin(), kLargestShapes.end());
  for (const auto& [m, n] : shapes) {
    SCOPED_TRACE(std::to_string(m) + " x " + std::to_string(n));
    // A random one, one of rank two, one with equal columns and steep ones.
    std::vector<Rectangle<T>> all{as<T>(random_rectangle(m, n, 1))};
    const Rectangle<double> x = random_rectangle(m, 2, 2), y = random_rectangle(2, n, 3);
    Rectangle<double> low(m, n), steep = random_rectangle(m, n, 4);
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        low(i, j) = x(i, 0) * y(0, j) + 1e-2 * x(i, 1) * y(1, j);
        steep(i, j) = steep(i, j / 2 * 2) * std::pow(0.9, double(j));
      }
    all.push_back(as<T>(low));
    all.push_back(as<T>(steep));
    all.push_back(Rectangle<T>(m, n));  // zeros
    const Factors<T> f = decompose_on_device(all);
    for (std::size_t b = 0; b < all.size(); ++b) expect_decomposition(all[b], f, std::int64_t(b));
    if (m * n > 128 * 128) continue;
    // In a large batch, each is solved by one block.
    std::vector<Rectangle<T>> many;
    while (many.size() < 66) many.insert(many.end(), all.begin(), all.end());
    const Factors<T> of_many = decompose_on_device(many);
    for (std::size_t b = 0; b < all.size(); ++b)
      expect_decomposition(all[b], of_many, std::int64_t(b));
  }
}

TYPED_TEST(CudaSvd, UnevenSpectra) {
  using T = TypeParam;
  for (const auto& [m, n] :
       Shapes{{16, 16}, {40, 64}, {64, 64}, {128, 128}, {150, 90}, {300, 300}}) {
    const std::vector<NamedRectangle> named = uneven_spectra(m, n);
    std::vector<Rectangle<T>> all;
    for (const auto& each : named) all.push_back(as<T>(each.matrix));
    const std::size_t different = all.size();
    for (const std::size_t batch : {std::size_t(1), different, std::size_t(150)}) {
      if (batch > different && n > 128) continue;
      // Beside random ones, which need no more.
      for (std::uint64_t b = all.size(); b < batch; ++b)
        all.push_back(as<T>(random_rectangle(m, n, b)));
      for (std::size_t first = 0; first < different; first += batch) {
        const Factors<T> f = decompose_on_device(std::vector<Rectangle<T>>(
            all.begin() + std::int64_t(first), all.begin() + std::int64_t(first + batch)));
        for (std::size_t b = 0; b < std::min(batch, different); ++b) {
          SCOPED_TRACE(named[first + b].name + ", " + std::to_string(m) + " x " +
                       std::to_string(n) + ", batch " + std::to_string(batch));
          expect_decomposition(all[first + b], f, std::int64_t(b));
        }
      }
    }
  }
}

TYPED_TEST(CudaSvd, TheLargestHaveTheSameContract) {
  using T = TypeParam;
  for (const auto& [m, n] : kLargestShapes) {
    SCOPED_TRACE(std::to_string(m) + " x " + std::to_string(n));
    const Rectangle<T> good = as<T>(random_rectangle(m, n, 1));
    std::vector<Rectangle<T>> all(4, good);
    all[0].data[7] = std::numeric_limits<T>::quiet_NaN();
    all[2].data.back() = std::numeric_limits<T>::infinity();
    for (T& x : all[3].data) x = std::ldexp(x, -100);
    const Factors<T> f = decompose_on_device(all);
    for (const std::int64_t bad : {0, 2}) {
      EXPECT_EQ(f.status[std::size_t(bad)], SvdStatus::not_finite);
      for (std::int64_t i = 0; i < m * f.k; ++i) ASSERT_TRUE(std::isnan(f.u(bad)[i]));
      for (std::int64_t i = 0; i < n * f.k; ++i) ASSERT_TRUE(std::isnan(f.v(bad)[i]));
      for (std::int64_t i = 0; i < f.k; ++i) ASSERT_TRUE(std::isnan(f.value(bad)[i]));
    }
    expect_decomposition(all[1], f, 1);
    EXPECT_TRUE(bitwise_equal(f.u(3), f.u(1), m * f.k));
    for (std::int64_t i = 0; i < f.k; ++i)
      EXPECT_EQ(f.value(3)[i], std::ldexp(f.value(1)[i], -100));
    SvdProblem<T> problem(std::vector<Rectangle<T>>{good});
    run_as_graph([&](const Stream& stream) { EXPECT_THROW(problem.queue(stream), Error); });
  }
}

// Blocks whose last matrices are missing, and more matrices than run at once.
TYPED_TEST(CudaSvd, EveryBatch) {
  using T = TypeParam;
  for (const auto& [m, n, batch] :
       std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t>>{{3, 3, 1},
                                                                         {3, 3, 127},
                                                                         {3, 3, 9001},
                                                                         {4, 3, 300},
                                                                         {9, 9, 1000},
                                                                         {32, 32, 300},
                                                                         {64, 64, 150},
                                                                         {128, 128, 16},
                                                                         {128, 128, 17},
                                                                         {200, 150, 530}}) {
    SCOPED_TRACE(std::to_string(m) + " x " + std::to_string(n) + ", batch " +
                 std::to_string(batch));
    std::vector<Rectangle<T>> few;
    for (std::uint64_t b = 0; b < 7; ++b) few.push_back(as<T>(random_rectangle(m, n, b)));
    std::vector<Rectangle<T>> all;
    for (std::int64_t b = 0; b < batch; ++b) all.push_back(few[std::size_t(b % 7)]);
    const Factors<T> f = decompose_on_device(all);
    for (std::int64_t b = 0; b < std::min<std::int64_t>(batch, 7); ++b)
      expect_decomposition(all[std::size_t(b)], f, b);
    for (std::int64_t b = 7; b < batch; ++b) {
      ASSERT_EQ(f.status[std::size_t(b)], SvdStatus::converged);
      ASSERT_TRUE(bitwise_equal(f.value(b), f.value(b % 7), f.k)) << b;
      ASSERT_TRUE(bitwise_equal(f.u(b), f.u(b % 7), m * f.k)) << b;
      ASSERT_TRUE(bitwise_equal(f.v(b), f.v(b % 7), f.k * n)) << b;
    }
  }
}

TYPED_TEST(CudaSvd, ValuesAreTheCpus) {
  using T = TypeParam;
  for (const Shapes& shapes : {kSmallShapes, kLargeShapes, kLargestShapes})
    for (const auto& [m, n] : shapes) {
      const std::vector<Rectangle<T>> one{as<T>(random_rectangle(m, n, 8))};
      const Factors<T> f = decompose_on_device(one), host = decompose(one);
      for (std::int64_t j = 0; j < f.k; ++j)
        EXPECT_NEAR(f.value(0)[j], host.value(0)[j], rounding<T>(std::max(m, n), host.value(0)[0]))
            << m << " x " << n << ", value " << j;
    }
}

TYPED_TEST(CudaSvd, AsAccurateAsOnTheCpu) {
  using T = TypeParam;
  for (const auto& [m, n] :
       Shapes{{3, 3}, {4, 4}, {9, 9}, {60, 3}, {32, 32}, {64, 64}, {128, 128}, {256, 256}}) {
    const std::vector<Rectangle<T>> one{as<T>(random_rectangle(m, n, 21))};
    const Factors<T> f = decompose_on_device(one), host = decompose(one);
    const SvdQuality own = quality_of(one[0], f.value(0), f.u(0), f.v(0)),
                     twin = quality_of(one[0], host.value(0), host.u(0), host.v(0));
    EXPECT_LE(own.residual, eigh_bound<T>(twin.residual)) << m << " x " << n;
    EXPECT_LE(own.orthogonality, eigh_bound<T>(twin.orthogonality)) << m << " x " << n;
  }
}

TYPED_TEST(CudaSvd, SmallValuesOfSteepMatricesHaveTheirDigits) {
  using T = TypeParam;
  const double step = sizeof(T) == 4 ? 0.05 : 1e-3;
  for (const std::int64_t n : {3, 4, 8, 12})
    expect_digits_where_steep<T>(n + (n < 4 ? 1 : 3), n, step, [](const Rectangle<T>& matrix) {
      return decompose_on_device(std::vector<Rectangle<T>>{matrix});
    });
}

TYPED_TEST(CudaSvd, MatesAndPlaceDoNotMatter) {
  using T = TypeParam;
  for (const auto& [m, n] : Shapes{{1, 1},
                                   {3, 3},
                                   {4, 2},
                                   {2, 4},
                                   {5, 5},
                                   {9, 9},
                                   {60, 3},
                                   {33, 20},
                                   {64, 64},
                                   {66, 65},
                                   {150, 129}}) {
    if (is_too_large(m * n, 128 * 128)) continue;
    SCOPED_TRACE(std::to_string(m) + " x " + std::to_string(n));
    const Rectangle<T> one = as<T>(random_rectangle(m, n, 3));
    std::vector<Rectangle<T>> calm(5, one), wild;
    for (std::uint64_t b = 0; b < 4; ++b) wild.push_back(as<T>(random_rectangle(m, n, 40 + b)));
    wild.push_back(one);
    wild[1].data.back() = std::numeric_limits<T>::quiet_NaN();
    wild[2].data.front() = -std::numeric_limits<T>::infinity();
    wild[3].data.assign(wild[3].data.size(), T(0));
    const Factors<T> a = decompose_on_device(calm), b = decompose_on_device(wild);
    for (const std::int64_t place : {0, 2, 4}) {
      EXPECT_TRUE(bitwise_equal(a.value(place), b.value(4), a.k));
      EXPECT_TRUE(bitwise_equal(a.u(place), b.u(4), m * a.k));
      EXPECT_TRUE(bitwise_equal(a.v(place), b.v(4), a.k * n));
    }
    for (const std::int64_t broken : {1, 2}) {
      EXPECT_EQ(b.status[std::size_t(broken)], SvdStatus::not_finite);
      for (std::int64_t i = 0; i < a.k; ++i) EXPECT_TRUE(std::isnan(b.value(broken)[i]));
      for (std::int64_t i = 0; i < m * a.k; ++i) EXPECT_TRUE(std::isnan(b.u(broken)[i]));
      for (std::int64_t i = 0; i < a.k * n; ++i) EXPECT_TRUE(std::isnan(b.v(broken)[i]));
    }
    EXPECT_EQ(b.status[3], SvdStatus::converged);
    for (std::int64_t i = 0; i < a.k; ++i) EXPECT_EQ(b.value(3)[i], T(0));
  }
}

// Few matrices take fewer launches, by the same operations.
TYPED_TEST(CudaSvd, FewAreSolvedAsManyAre) {
  using T = TypeParam;
  for (const auto& [m, n] : Shapes{{12, 12},
                                   {16, 16},
                                   {13, 20},
                                   {32, 32},
                                   {33, 20},
                                   {200, 17},
                                   {64, 64},
                                   {40, 63},
                                   {200, 40}}) {
    SCOPED_TRACE(std::to_string(m) + " x " + std::to_string(n));
    std::vector<Rectangle<T>> few;
    for (std::uint64_t b = 0; b < 5; ++b) few.push_back(as<T>(random_rectangle(m, n, b)));
    for (std::int64_t j = 0; j < n; ++j)
      few[3](0, j) *= T(1e-6);  // steep if there are no rows to spare
    few[4].data.back() = std::numeric_limits<T>::quiet_NaN();
    std::vector<Rectangle<T>> many;  // than there are multiprocessors
    for (std::size_t b = 0; b < 300; ++b) many.push_back(few[b % few.size()]);
    const Factors<T> a = decompose_on_device(few), f = decompose_on_device(many);
    for (std::int64_t b = 0; b < 300; ++b) {
      const std::int64_t twin = b % 5;
      ASSERT_EQ(f.status[std::size_t(b)], a.status[std::size_t(twin)]) << b;
      if (twin == 4) continue;  // NaN
      ASSERT_TRUE(bitwise_equal(f.value(b), a.value(twin), f.k)) << b;
      ASSERT_TRUE(bitwise_equal(f.u(b), a.u(twin), m * f.k)) << b;
      ASSERT_TRUE(bitwise_equal(f.v(b), a.v(twin), f.k * n)) << b;
    }
  }
}

TYPED_TEST(CudaSvd, IsFreeOfScale) {
  using T = TypeParam;
  for (const auto& [m, n] : Shapes{{3, 3}, {9, 6}, {24, 20}, {150, 140}}) {
    const Rectangle<T> matrix = as<T>(random_rectangle(m, n, 3));
    const Factors<T> plain = decompose_on_device(std::vector<Rectangle<T>>(5, matrix));
    for (const int power : {-100, -40, 40, 100}) {
      Rectangle<T> scaled = matrix;
      for (T& x : scaled.data) x = std::ldexp(x, power);
      const Factors<T> f = decompose_on_device(std::vector<Rectangle<T>>(5, scaled));
      EXPECT_TRUE(bitwise_equal(f.left, plain.left) && bitwise_equal(f.right, plain.right));
      for (std::size_t i = 0; i < f.values.size(); ++i)
        EXPECT_EQ(f.values[i], std::ldexp(plain.values[i], power));
    }
  }
}

TYPED_TEST(CudaSvd, CanBeCapturedInAGraph) {
  using T = TypeParam;
  for (const auto& [m, n] : Shapes{{3, 3}, {24, 24}, {512, 64}, {150, 150}}) {
    const std::vector<Rectangle<T>> all(2, as<T>(random_rectangle(m, n, 11)));
    const Factors<T> eager = decompose_on_device(all);
    SvdProblem<T> problem(all);
    run_as_graph([&](const Stream& stream) { problem.queue(stream); });
    const Factors<T> f = problem.solved();
    EXPECT_TRUE(bitwise_equal(f.left, eager.left) && bitwise_equal(f.right, eager.right));
  }
}

TYPED_TEST(CudaSvd, StridesAreRespected) {
  using T = TypeParam;
  for (const auto& [m, n] : Shapes{{4, 3},
                                   {2, 4},
                                   {9, 6},
                                   {6, 40},
                                   {20, 16},
                                   {16, 24},
                                   {140, 150},
                                   {150, 140},
                                   {530, 520},
                                   {520, 530}}) {
    if (is_too_large(m, 260)) continue;
    const std::int64_t k = std::min(m, n), batch = 3, wide = n + 3, step = (m + 1) * wide;
    std::vector<Rectangle<T>> all;
    for (std::uint64_t b = 0; b < 3; ++b) all.push_back(as<T>(random_rectangle(m, n, 60 + b)));
    const Factors<T> plain = decompose_on_device(all);
    const T nan = std::numeric_limits<T>::quiet_NaN();
    std::vector<T> spread(std::size_t(batch * step), nan);
    for (std::int64_t b = 0; b < batch; ++b)
      for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t j = 0; j < n; ++j)
          spread[std::size_t(b * step + i * wide + j)] = all[std::size_t(b)](i, j);
    OnDevice<T> in(spread), u(std::vector<T>(spread.size(), nan)),
        v(std::vector<T>(spread.size(), nan)), s(std::vector<T>(std::size_t(batch * k)));
    cuda::svd<T>({in.data(), batch, m, n, wide, step}, s.data(),
                 {u.data(), batch, m, k, wide, step}, {v.data(), batch, k, n, wide, step});
    EXPECT_TRUE(bitwise_equal(s.back(), plain.values));
    const std::vector<T> left = u.back(), right = v.back();
    for (std::int64_t at = 0; at < batch * step; ++at) {
      const std::int64_t b = at / step, i = at % step / wide, j = at % step % wide;
      const T x = left[std::size_t(at)], y = right[std::size_t(at)];
      EXPECT_TRUE(i < m && j < k ? x == plain.u(b)[i * k + j] : std::isnan(x));
      EXPECT_TRUE(i < k && j < n ? y == plain.v(b)[i * n + j] : std::isnan(y));
    }
  }
}

TEST(CudaSvd, ErrorsAndEmptyShapes) {
  const auto none = [](std::int64_t batch, std::int64_t m, std::int64_t n) {
    return contiguous<float>(nullptr, batch, m, n);
  };
  EXPECT_THROW(cuda::svd<float>(none(-1, 3, 3), nullptr, none(-1, 3, 3), none(-1, 3, 3)), Error);
  EXPECT_THROW(cuda::svd<float>(none(1, 4, 3), nullptr, none(1, 4, 4), none(1, 3, 3)), Error);
  cuda::svd<float>(none(0, 5, 5), nullptr, none(0, 5, 5), none(0, 5, 5));
  OnDevice<SvdStatus> status(std::vector<SvdStatus>(2, SvdStatus(9)));
  cuda::svd<float>(none(2, 0, 5), nullptr, none(2, 0, 0), none(2, 0, 5), status.data());
  for (const SvdStatus each : status.back()) EXPECT_EQ(each, SvdStatus::converged);
}

}  // namespace
}  // namespace keel::testing
