// The rank policies of keel/spectral.h, on the GPU. Needs a GPU.

#include "batch_on_device.h"

#include <gtest/gtest.h>
#include "keel/error.h"
#include "support/solve.h"
#include "support/spectral.h"
#include "support/spectrum_zoo.h"
#include "support/tolerance.h"

namespace keel::testing {
namespace {

using Ranks = std::vector<std::int64_t>;

template <typename T>
Ranks on_device(const RankPolicy& policy, const Batch<T>& m, const Solved<T>& s,
                std::int64_t gap = 0, bool in_graph = false) {
  OnDevice<std::int64_t> rank(Ranks(std::size_t(s.vectors.batch), -77));
  OnDevice<T> values(s.values);
  BatchOnDevice<T> matrices(m, gap), vectors(s.vectors, 2 * gap);
  const auto queue = [&](const Stream& stream) {
    cuda::spectral_rank<T>(policy, matrices.view(), values.data(), vectors.view(), rank.data(),
                           stream);
  };
  if (in_graph)
    run_as_graph(queue);
  else
    queue({});
  return rank.back();
}

template <typename T>
Ranks on_cpu(const RankPolicy& policy, const Batch<T>& m, const Solved<T>& s) {
  Ranks rank(std::size_t(s.vectors.batch), -77);
  cpu::spectral_rank<T>(policy, m.view(), s.values.data(), s.vectors.view(), rank.data());
  return rank;
}

const RankPolicy kPolicies[] = {
    FullRank{},
    LeadingCount{3},
    LeadingCount{1000},
    LeadingEnergy{0.01},
    LeadingEnergy{0.777},
    LeadingEnergy{1},
    Algorithm1{},
    Algorithm1{.eps = 0.3, .energy = std::nullopt},
    Algorithm1{.eps = std::nullopt, .energy = 0.777},
    Algorithm1{.eps = 1e-3, .rayleigh_tolerance = std::nullopt, .energy = 0.777},
    Algorithm1{.energy = 0.777, .keep_reaching = false},
    Algorithm1{.energy = 0.777, .literal = true},
    Algorithm1{.energy = 0.777, .keep_reaching = false, .literal = true},
    Algorithm1{.eps = std::nullopt, .rayleigh_tolerance = std::nullopt, .energy = std::nullopt}};

template <typename T>
class CudaSpectralRank : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(CudaSpectralRank, Types);

TYPED_TEST(CudaSpectralRank, IsTheCpusForEverySizeAndPolicy) {
  using T = TypeParam;
  for (const std::int64_t n : {1, 2, 3, 4, 5, 8, 16, 17, 32, 33, 48, 64, 65, 100, 130, 256})
    for (const std::int64_t samples : {4 * n, (n + 1) / 2}) {
      Batch<T> m(2, n);
      for (std::int64_t b = 0; b < 2; ++b)
        m.set(b, wishart(n, samples, std::uint64_t(5 + b)).matrix(0));
      const Solved<T> s = solve(m);
      for (const RankPolicy& policy : kPolicies) {
        // With few samples, noise around zero decides what the total energy is.
        if (samples < n && to_string(policy) == "leading_energy(fraction=1)") continue;
        EXPECT_EQ(on_device(policy, m, s), on_cpu(policy, m, s))
            << to_string(policy) << ", n = " << n << ", " << samples << " samples";
      }
    }
}

TYPED_TEST(CudaSpectralRank, IsTheReferenceOnTheZoo) {
  using T = TypeParam;
  for (const std::int64_t n : {12, 40, 70})
    for (const auto& [name, m] : spectrum_zoo<T>(n)) {
      if (name == "denormal" || name == "huge") continue;
      // Equal values and noise may decide ties either way. These policies avoid ties.
      for (const RankPolicy& policy :
           {RankPolicy(LeadingCount{.count = 5}), RankPolicy(LeadingEnergy{.fraction = 0.7771}),
            RankPolicy(Algorithm1{.eps = 1e-3, .energy = 0.7771, .literal = true})}) {
        const Solved<T> s = solve(m);
        Ranks truth(1);
        const Solved<double> s64{as<double>(s.values), as<double>(s.vectors), {}};
        reference::spectral_rank(policy, as<double>(m).view(), s64.values.data(),
                                 s64.vectors.view(), truth.data());
        EXPECT_EQ(on_device(policy, m, s), truth)
            << to_string(policy) << " on " << name << ", n = " << n;
      }
    }
}

TYPED_TEST(CudaSpectralRank, EqualsOfTheOneThatReachesTheEnergyHaveItsFate) {
  using T = TypeParam;
  for (const std::int64_t n : {4, 5, 31, 33, 40, 64, 65, 100, 130})
    for (const std::int64_t first : {std::int64_t(1), n / 4, n / 2})
      for (const std::int64_t last : {n - 1, (first + n) / 2}) {
        // From `first` to `last` they are equal but for rounding.
        const Batch<T> m = as<T>(diagonal(spectrum(n, [&](double i) {
          return i < double(first)  ? 8 - i / double(n)
                 : i < double(last) ? 1 - 0.5 * i / double(n) * kEps<T>
                                    : 0.5 - 0.25 * i / double(n);
        })));
        const Solved<T> s = solve(m);
        for (const double energy : {0.3, 0.6, 0.8, 0.9, 0.97, 0.995})
          for (const bool keep : {true, false})
            for (const bool literal : {true, false})
              for (const std::optional<double> tolerance : {std::optional<double>{}, {0.1}}) {
                const RankPolicy policy = Algorithm1{1e-4, tolerance, energy, keep, literal};
                EXPECT_EQ(on_device(policy, m, s), on_cpu(policy, m, s))
                    << to_string(policy) << ", n = " << n << ", " << first << " to " << last;
              }
      }
}

TYPED_TEST(CudaSpectralRank, AValueWithinRoundingOfEpsIsNotAboveIt) {
  using T = TypeParam;
  for (const std::int64_t n : {4, 33, 64, 65, 100})
    for (const double beyond : {-0.5, 0.5, 0.9, 1.1, 3.0}) {
      const double noise = 10 * double(n) * kEps<T>;
      const Batch<T> m = as<T>(diagonal(
          spectrum(n, [&](double i) { return i < 2 ? 1 : 0.25 + beyond * noise * (i < 3); })));
      const Solved<T> s = solve(m);
      for (const bool literal : {true, false}) {
        const RankPolicy policy = Algorithm1{.eps = 0.25, .energy = {}, .literal = literal};
        EXPECT_EQ(on_device(policy, m, s), Ranks{beyond > (literal ? 0 : 1) ? 3 : 2}) << beyond;
      }
    }
}

TYPED_TEST(CudaSpectralRank, EnergyIsTheFewestThatReachIt) {
  using T = TypeParam;
  const Batch<T> m = as<T>(diagonal({4, 2, 1, 1, 0, -1}));
  const Solved<T> s = solve(m);
  const std::pair<double, std::int64_t> table[] = {{0.01, 1}, {0.5, 1}, {0.51, 2},
                                                   {0.75, 2}, {0.8, 3}, {1, 4}};
  for (const auto& [fraction, rank] : table)
    EXPECT_EQ(on_device(LeadingEnergy{fraction}, m, s), Ranks{rank}) << fraction;
}

TYPED_TEST(CudaSpectralRank, StopsWhereTheRayleighQuotientIsOff) {
  using T = TypeParam;
  for (const std::int64_t n : {4, 20, 50, 80}) {
    const auto at = [&](double i) { return 1 + (double(n) - i) / double(n); };
    const Batch<T> m = as<T>(with_spectrum(spectrum(n, at), 2));
    const Algorithm1 policy{.energy = std::nullopt};
    Solved<T> s = solve(m);
    EXPECT_EQ(on_device(policy, m, s), Ranks{n});
    const std::int64_t last = n - 1;
    s.values[std::size_t(last)] *= T(0.85);
    EXPECT_EQ(on_device(policy, m, s), Ranks{last});
    // A vector that leans towards the first one. Deflation removes what that adds, and a lean^2 share more.
    for (const double lean : {0.01, 0.2, 0.5}) {
      Solved<T> spoiled = solve(m);
      for (std::int64_t i = 0; i < n; ++i)
        spoiled.vectors(0, i, 2) = T(std::sqrt(1 - lean * lean) * double(spoiled.vectors(0, i, 2)) +
                                     lean * double(spoiled.vectors(0, i, 0)));
      EXPECT_EQ(on_device(policy, m, spoiled), on_cpu(policy, m, spoiled)) << lean;
      EXPECT_EQ(on_device(policy, m, spoiled), Ranks{lean > 0.4 ? 2 : n}) << lean;
    }
  }
}

TYPED_TEST(CudaSpectralRank, NaNIsolationStridesAndGraphs) {
  using T = TypeParam;
  for (const std::int64_t n : {4, 17, 64, 66}) {
    const std::int64_t batch = n == 4 ? 300 : 7;
    Batch<double> all(batch, n);
    for (std::int64_t b = 0; b < batch; ++b)
      all.set(b, wishart(n, 1 + b % (2 * n), std::uint64_t(b + 1)).matrix(0));
    const Batch<T> m = as<T>(all);
    Solved<T> s = solve(m);
    s.values[std::size_t(3 * n)] = std::numeric_limits<T>::quiet_NaN();
    for (const RankPolicy& policy : {RankPolicy(Algorithm1{}), RankPolicy(LeadingEnergy{0.9})}) {
      const Ranks rank = on_cpu(policy, m, s);
      EXPECT_EQ(rank[3], 1);
      EXPECT_EQ(on_device(policy, m, s), rank) << "n = " << n;
      EXPECT_EQ(on_device(policy, m, s, 3), rank) << "n = " << n;
      EXPECT_EQ(on_device(policy, m, s, 0, true), rank) << "n = " << n;
    }
  }
}

TYPED_TEST(CudaSpectralRank, ReadsTheLowerTriangleOnly) {
  using T = TypeParam;
  for (const std::int64_t n : {4, 33, 66}) {
    Batch<T> m = as<T>(with_spectrum(spectrum(n, [](double i) { return 1 + i; }), 5));
    const Solved<T> s = solve(m);
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = i + 1; j < n; ++j) m(0, i, j) = std::numeric_limits<T>::quiet_NaN();
    EXPECT_EQ(on_device(Algorithm1{.energy = std::nullopt}, m, s), Ranks{n});
    EXPECT_THROW(on_device(Algorithm1{}, Batch<T>(1, n + 1), s), Error);
  }
}

TYPED_TEST(CudaSpectralRank, EmptyShapes) {
  using T = TypeParam;
  const Solved<T> none{{}, Batch<T>(0, 3), {}}, empty{{}, Batch<T>(4, 0), {}};
  for (const RankPolicy& policy : kPolicies) {
    EXPECT_TRUE(on_device(policy, none.vectors, none).empty());
    EXPECT_EQ(on_device(policy, empty.vectors, empty), Ranks(4, 0));
  }
}

}  // namespace
}  // namespace keel::testing
