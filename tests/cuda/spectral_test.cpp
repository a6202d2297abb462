// The contract in keel/spectral.h, on the GPU: f(M) and its gradients. Needs a GPU.

#include "keel/spectral.h"

#include <gtest/gtest.h>

#include "batch_on_device.h"
#include "keel/error.h"
#include "support/spectral.h"
#include "support/spectrum_zoo.h"
#include "support/tolerance.h"

namespace keel::testing {
namespace {

using Ranks = std::vector<std::int64_t>;

constexpr std::int64_t kSizes[] = {1, 2, 3, 4, 5, 8, 16, 17, 32, 33, 48, 64, 65, 100, 130};
const SpectralFunction kFew[] = {{Kind::one}, {Kind::inv_sqrt}, {Kind::log}, {Kind::power, 2.5}};
const SpectralRule kRules[] = {Exact{},   Exact{.terms = 3},         PowerIteration{},
                               Taylor{},  Lorentzian{.width = 0.01}, Masked{.tolerance = 1e-3},
                               Analytic{}};

/// The reference is slow for large matrices, so they are tested with fewer functions.
std::vector<SpectralFunction> functions(std::int64_t n) {
  if (n <= 17) return {std::begin(kFunctions), std::end(kFunctions)};
  return {std::begin(kFew), std::end(kFew)};
}

template <typename T>
struct Device {
  std::int64_t gap = 0;
  bool in_graph = false;
  Batch<T> forward(const SpectralFunction& f, const Solved<T>& s, const Ranks& rank) const {
    OnDevice<T> values(s.values);
    OnDevice<std::int64_t> ranks(rank);
    BatchOnDevice<T> vectors(s.vectors, gap),
        out(Batch<T>(s.vectors.batch, s.vectors.n, T(-77)), 2 * gap);
    run(in_graph, [&](const Stream& stream) {
      cuda::spectral<T>(f, values.data(), vectors.view(), ranks.data(), out.view(), stream);
    });
    return out.back();
  }
  Batch<T> backward(const SpectralFunction& f, const SpectralRule& rule, const Solved<T>& s,
                    const Ranks& rank, const Batch<T>& dL_dresult) const {
    OnDevice<T> values(s.values);
    OnDevice<std::int64_t> ranks(rank);
    BatchOnDevice<T> vectors(s.vectors, gap), c(dL_dresult, 2 * gap),
        out(Batch<T>(s.vectors.batch, s.vectors.n, T(-77)), 3 * gap);
    run(in_graph, [&](const Stream& stream) {
      cuda::spectral_backward<T>(f, rule, values.data(), vectors.view(), ranks.data(), c.view(),
                                 out.view(), stream);
    });
    return out.back();
  }
};

template <typename T>
class CudaSpectral : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(CudaSpectral, Types);

TYPED_TEST(CudaSpectral, ForwardIsTheReference) {
  using T = TypeParam;
  for (const std::int64_t n : kSizes) {
    const Solved<T> s =
        solve(as<T>(with_spectrum(spectrum(n, [](double i) { return 0.5 + std::fmod(i, 7); }), 4)));
    for (const SpectralFunction& f : kFunctions)
      for (const std::int64_t kept : {n, (n + 1) / 2}) {
        const Batch<double> truth = spectral_by_reference(f, as<double>(s), {kept});
        const Batch<T> ours = Device<T>{}.forward(f, s, {kept});
        EXPECT_LE(largest_difference(ours, truth), rounding<T>(n, 1 + largest_entry(truth)))
            << to_string(f) << ", n = " << n << ", rank " << kept;
        EXPECT_TRUE(exactly_symmetric(ours));
      }
  }
}

TYPED_TEST(CudaSpectral, BackwardIsTheReference) {
  using T = TypeParam;
  for (const std::int64_t n : kSizes) {
    const std::vector<double> values =
        spectrum(n, [&](double i) { return 0.5 + 5 * i / double(n); });
    const Solved<T> s = solve(as<T>(with_spectrum(values, 5)));
    const Batch<T> c = as<T>(random_matrices(1, n, 6));
    for (const SpectralFunction& f : functions(n))
      for (const SpectralRule& rule : kRules)
        for (const std::int64_t kept : {n, (n + 1) / 2}) {
          const Batch<double> truth =
              spectral_backward_by_reference(f, rule, as<double>(s), {kept}, as<double>(c));
          const Batch<T> ours = Device<T>{}.backward(f, rule, s, {kept}, c);
          // Under the quotient rules, rounding in f is divided by the gap.
          const double magnitude = largest_entry(truth) + double(n);
          EXPECT_LE(largest_difference(ours, truth), rounding<T>(n, 4 * magnitude))
              << to_string(f) << ", " << to_string(rule) << ", n = " << n << ", rank " << kept;
          EXPECT_TRUE(exactly_symmetric(ours));
        }
  }
}

TYPED_TEST(CudaSpectral, IsTheCpusForLargeMatrices) {
  using T = TypeParam;
  for (const std::int64_t n : {128, 200, 256, 300}) {
    Batch<double> m(2, n);
    for (std::int64_t b = 0; b < 2; ++b)
      m.set(b, wishart(n, 2 * n, std::uint64_t(b + 1)).matrix(0));
    const Solved<T> s = solve(as<T>(m));
    const Batch<T> c = as<T>(random_matrices(2, n, 6));
    const SpectralFunction f{Kind::inv_sqrt};
    const Ranks rank{n, n / 2};
    const Batch<T> forward = spectral(f, s, rank), ours = Device<T>{}.forward(f, s, rank);
    EXPECT_LE(largest_difference(ours, as<double>(forward)),
              rounding<T>(n, 1 + largest_entry(forward)));
    for (const SpectralRule& rule : {SpectralRule(Exact{}), SpectralRule(PowerIteration{})}) {
      const Batch<T> slope = spectral_backward(f, rule, s, rank, c),
                     our_slope = Device<T>{}.backward(f, rule, s, rank, c);
      EXPECT_LE(largest_difference(our_slope, as<double>(slope)),
                rounding<T>(n, 4 * largest_entry(slope)))
          << to_string(rule) << ", n = " << n;
      EXPECT_TRUE(exactly_symmetric(our_slope));
    }
  }
}

TYPED_TEST(CudaSpectral, IsTheCpusOnTheZoo) {
  using T = TypeParam;
  for (const std::int64_t n : {2, 5, 16, 33, 70})
    for (const auto& [name, m] : spectrum_zoo<T>(n)) {
      const Solved<T> s = solve(m);
      const Batch<T> c = as<T>(random_matrices(1, n, 6));
      for (const SpectralFunction& f : kFew) {
        SCOPED_TRACE(to_string(f) + " on " + name + ", n = " + std::to_string(n));
        const Batch<T> forward = spectral(f, s, {n}), ours = Device<T>{}.forward(f, s, {n});
        const Batch<T> slope = spectral_backward(f, Exact{}, s, {n}, c),
                       our_slope = Device<T>{}.backward(f, Exact{}, s, {n}, c);
        // Outside f's domain or the type's range, CPU and GPU must both return non-finite results.
        ASSERT_EQ(all_finite(ours), all_finite(forward));
        ASSERT_EQ(all_finite(our_slope), all_finite(slope));
        if (all_finite(ours)) {
          EXPECT_LE(largest_difference(ours, as<double>(forward)),
                    rounding<T>(n, 1 + largest_entry(forward)));
        }
        if (all_finite(our_slope)) {
          EXPECT_LE(largest_difference(our_slope, as<double>(slope)),
                    rounding<T>(n, 4 * largest_entry(slope)));
        }
      }
    }
}

TYPED_TEST(CudaSpectral, UndefinedGivesNaNThroughout) {
  using T = TypeParam;
  for (const std::int64_t n : {3, 17, 64, 66}) {
    const Solved<T> s = solve(
        as<T>(with_spectrum(spectrum(n, [&](double i) { return i == 1 ? -1.0 : 1 + i; }), 7)));
    const Batch<T> c = as<T>(random_matrices(1, n, 6));
    for (const SpectralFunction& f : {SpectralFunction{Kind::log}, SpectralFunction{Kind::sqrt},
                                      SpectralFunction{Kind::power, 0.3}})
      for (const SpectralRule& rule : kRules) {
        for (const T x : Device<T>{}.forward(f, s, {n}).data) ASSERT_TRUE(std::isnan(x));
        for (const T x : Device<T>{}.backward(f, rule, s, {n}, c).data) ASSERT_TRUE(std::isnan(x));
        // With the negative eigenvalue dropped, everything is finite.
        ASSERT_TRUE(all_finite(Device<T>{}.forward(f, s, {n - 1})));
        ASSERT_TRUE(all_finite(Device<T>{}.backward(f, rule, s, {n - 1}, c)));
      }
  }
}

/// Covariances, their decompositions and a gradient for each.
template <typename T>
struct Crowd {
  Solved<T> solved;
  Batch<T> gradient;
  Ranks rank;

  Crowd(std::int64_t batch, std::int64_t n) : gradient(as<T>(random_matrices(batch, n, 9))) {
    Batch<double> m(batch, n);
    for (std::int64_t b = 0; b < batch; ++b) {
      m.set(b, wishart(n, 2 * n, std::uint64_t(b + 1)).matrix(0));
      rank.push_back(1 + b % n);
    }
    solved = solve(as<T>(m));
  }
  Crowd alone(std::int64_t b) const {
    const std::int64_t n = gradient.n;
    Crowd one(1, n);
    one.rank = {rank[std::size_t(b)]};
    one.gradient.set(0, gradient.matrix(b));
    one.solved.vectors.set(0, solved.vectors.matrix(b));
    one.solved.values.assign(solved.values.begin() + b * n, solved.values.begin() + (b + 1) * n);
    return one;
  }
  Batch<T> forward(const Device<T>& device = {}) const {
    return device.forward({Kind::inv_sqrt}, solved, rank);
  }
  Batch<T> backward(const Device<T>& device = {}) const {
    return device.backward({Kind::inv_sqrt}, Exact{}, solved, rank, gradient);
  }
};

TYPED_TEST(CudaSpectral, BatchesPlacesAndBadMates) {
  using T = TypeParam;
  for (const std::int64_t n : {1, 4, 16, 20, 40, 70})
    for (const std::int64_t batch : {7, 300, 70000}) {
      if ((batch > 7 && n > 20) || (batch > 300 && n > 1)) continue;
      SCOPED_TRACE("n = " + std::to_string(n) + ", batch = " + std::to_string(batch));
      const Crowd<T> crowd(batch, n);
      const Batch<T> forward = crowd.forward(), backward = crowd.backward();
      for (const std::int64_t b : {std::int64_t(0), batch / 2, batch - 1}) {
        const Crowd<T> alone = crowd.alone(b);
        EXPECT_TRUE(bitwise_equal(alone.forward().matrix(0), forward.matrix(b), n * n));
        EXPECT_TRUE(bitwise_equal(alone.backward().matrix(0), backward.matrix(b), n * n));
        const Batch<double> truth =
            spectral_backward_by_reference({Kind::inv_sqrt}, Exact{}, as<double>(alone.solved),
                                           alone.rank, as<double>(alone.gradient));
        EXPECT_LE(largest_difference(alone.backward(), truth),
                  rounding<T>(n, 4 * (double(n) + largest_entry(truth))));
      }
      Crowd<T> bad = crowd;
      bad.solved.values[std::size_t(2 * n)] = std::numeric_limits<T>::quiet_NaN();
      bad.solved.vectors(3, 0, 0) = std::numeric_limits<T>::quiet_NaN();
      const Batch<T> spoilt = bad.backward();
      for (std::int64_t b = 0; b < batch; ++b)
        EXPECT_EQ(bitwise_equal(spoilt.matrix(b), backward.matrix(b), n * n), b != 2 && b != 3);
    }
}

TYPED_TEST(CudaSpectral, RowStridesAndGraphs) {
  using T = TypeParam;
  for (const std::int64_t n : {5, 32, 64, 66}) {
    const Crowd<T> crowd(3, n);
    const Batch<T> forward = crowd.forward(), backward = crowd.backward();
    for (const Device<T>& device : {Device<T>{.gap = 3}, Device<T>{.in_graph = true}}) {
      EXPECT_TRUE(bitwise_equal(crowd.forward(device).data, forward.data)) << "n = " << n;
      EXPECT_TRUE(bitwise_equal(crowd.backward(device).data, backward.data)) << "n = " << n;
    }
  }
}

TYPED_TEST(CudaSpectral, EmptyShapesAndErrors) {
  using T = TypeParam;
  const Solved<T> none{{}, Batch<T>(0, 3), {}}, empty{{}, Batch<T>(4, 0), {}};
  EXPECT_TRUE(Device<T>{}.forward({Kind::log}, none, {}).data.empty());
  EXPECT_TRUE(Device<T>{}.forward({Kind::log}, empty, {0, 0, 0, 0}).data.empty());
  EXPECT_TRUE(Device<T>{}.backward({Kind::log}, Exact{}, none, {}, none.vectors).data.empty());
  EXPECT_TRUE(
      Device<T>{}.backward({Kind::log}, Exact{}, empty, {0, 0, 0, 0}, empty.vectors).data.empty());
  const Solved<T> s = solve(as<T>(random_symmetric(1, 3, 83)));
  EXPECT_THROW(Device<T>{}.backward({Kind::log}, Exact{}, s, {3}, Batch<T>(1, 4)), Error);
  EXPECT_THROW(Device<T>{}.backward({Kind::log}, Exact{0}, s, {3}, Batch<T>(1, 3)), Error);
}

template <typename T>
struct Second {
  Batch<T> dL2_dresult, dL2_dmatrix;
};

template <typename T>
Second<T> second(const SpectralFunction& f, const Solved<T>& s, const Batch<T>& c,
                 const Batch<T>& h, bool to_result = true, bool to_matrix = true,
                 std::int64_t gap = 0) {
  const Batch<T> poison(s.vectors.batch, s.vectors.n, T(-77));
  OnDevice<T> values(s.values);
  BatchOnDevice<T> vectors(s.vectors, gap), first(c, gap), other(h, 2 * gap), result(poison, gap),
      matrix(poison, 2 * gap);
  cuda::spectral_second_backward<T>(f, values.data(), vectors.view(), first.view(), other.view(),
                                    to_result ? result.view() : Matrices<T>{},
                                    to_matrix ? matrix.view() : Matrices<T>{});
  return {result.back(), matrix.back()};
}

TYPED_TEST(CudaSpectral, TheSecondBackwardIsTheReference) {
  using T = TypeParam;
  for (const std::int64_t n : {1, 3, 7, 16, 17, 33, 64, 66}) {
    // Pairs that repeat, and pairs that almost do.
    const auto at = [&](double i) {
      return 0.5 + 4 * std::floor(i / 2) / double(n) + (std::fmod(i, 4) == 1 ? 1e-3 : 0);
    };
    const Solved<T> s = solve(as<T>(with_spectrum(spectrum(n, at), 1)));
    const Batch<T> c = as<T>(random_matrices(1, n, 2)), h = as<T>(random_matrices(1, n, 3));
    for (const SpectralFunction& f : functions(n)) {
      SCOPED_TRACE(to_string(f) + ", n = " + std::to_string(n));
      const Second<T> ours = second(f, s, c, h);
      Second<double> truth{Batch<double>(1, n), Batch<double>(1, n)};
      const Solved<double> s64 = as<double>(s);
      reference::spectral_second_backward(f, s64.values.data(), s64.vectors.view(),
                                          as<double>(c).view(), as<double>(h).view(),
                                          truth.dL2_dresult.view(), truth.dL2_dmatrix.view());
      EXPECT_LE(largest_difference(ours.dL2_dmatrix, truth.dL2_dmatrix),
                rounding<T>(n, 8 * (double(n) + largest_entry(truth.dL2_dmatrix))));
      EXPECT_LE(largest_difference(ours.dL2_dresult, truth.dL2_dresult),
                rounding<T>(n, 4 * (double(n) + largest_entry(truth.dL2_dresult))));
      EXPECT_TRUE(exactly_symmetric(ours.dL2_dmatrix));
      EXPECT_TRUE(exactly_symmetric(ours.dL2_dresult));
    }
  }
}

TYPED_TEST(CudaSpectral, TheSecondBackwardsOutputsStridesAndBadMates) {
  using T = TypeParam;
  for (const std::int64_t n : {4, 20, 66}) {
    const Crowd<T> crowd(7, n);
    const Batch<T> h = as<T>(random_matrices(7, n, 13));
    const SpectralFunction f{Kind::log};
    const Second<T> both = second(f, crowd.solved, crowd.gradient, h);
    const Second<T> result = second(f, crowd.solved, crowd.gradient, h, true, false, 3);
    const Second<T> matrix = second(f, crowd.solved, crowd.gradient, h, false, true, 3);
    EXPECT_TRUE(bitwise_equal(both.dL2_dresult.data, result.dL2_dresult.data));
    EXPECT_TRUE(bitwise_equal(both.dL2_dmatrix.data, matrix.dL2_dmatrix.data));
    EXPECT_EQ(result.dL2_dmatrix(0, 0, 0), T(-77));
    EXPECT_EQ(matrix.dL2_dresult(0, 0, 0), T(-77));
    Crowd<T> bad = crowd;
    bad.solved.values[std::size_t(5 * n + n - 1)] = T(-1);
    const Second<T> spoilt = second(f, bad.solved, bad.gradient, h);
    for (std::int64_t b = 0; b < 7; ++b) {
      EXPECT_EQ(bitwise_equal(both.dL2_dmatrix.matrix(b), spoilt.dL2_dmatrix.matrix(b), n * n),
                b != 5);
      EXPECT_EQ(std::isnan(spoilt.dL2_dresult(b, 0, 0)), b == 5);
    }
  }
}

}  // namespace
}  // namespace keel::testing
