#pragma once

// The contract in keel/layer_matrix.h, for every backend.

#include <functional>

#include "keel/error.h"
#include "support/backend.h"
#include "support/backward.h"
#include "support/layer_matrix.h"
#include "support/random.h"
#include "support/tolerance.h"

namespace keel::testing {

/// Calls of a backend, with `gap` numbers between rows, and more between other arrays' rows.
template <typename B, typename T>
struct LayerMatrixBy {
  using Way = typename B::Way;
  std::int64_t gap = 0;
  /// Runs a call in some way.
  std::function<void(const std::function<void(const Way&)>&)> run = [](auto& call) {
    call(B::way());
  };

  Mapped<T> forward(const LayerMap& map, const Batch<T>& covariance) const {
    Mapped<T> m(covariance.batch, covariance.n);
    BatchIn<B::template Numbers, T> input(covariance, gap), result(m.result, 2 * gap),
        vectors(m.vectors, 3 * gap);
    typename B::template Numbers<T> values(m.values);
    typename B::template Numbers<std::int64_t> rank(m.rank);
    run([&](const Way& way) {
      B::template layer_matrix<T>(way, map, input.view(), result.view(),
                                  LayerMatrixState<T>{values.data(), vectors.view(), rank.data()});
    });
    m.result = result.back();
    m.vectors = vectors.back();
    m.values = values.back();
    m.rank = rank.back();
    return m;
  }
  Batch<T> backward(const LayerMap& map, const SpectralRule& rule, const Batch<T>& covariance,
                    const Mapped<T>& m, const Batch<T>& dL_dresult) const {
    BatchIn<B::template Numbers, T> input(covariance, gap), vectors(m.vectors, 2 * gap),
        gradient(dL_dresult, 3 * gap), out(m.result, gap);
    typename B::template Numbers<T> values(m.values);
    typename B::template Numbers<std::int64_t> rank(m.rank);
    run([&](const Way& way) {
      B::template layer_matrix_backward<T>(
          way, map, rule, input.view(),
          LayerMatrixState<T>{values.data(), vectors.view(), rank.data()}, gradient.view(),
          out.view());
    });
    return out.back();
  }
};

/// Calls body(map, n) for every map with every policy, and those of the sizes that this backend's tests have time for.
template <typename B, typename Body>
void for_layer_maps(std::initializer_list<std::int64_t> sizes, const Body& body) {
  for (const std::int64_t n : sizes)
    for (const RankPolicy& policy : kLayerPolicies)
      for (const LayerMap& map : maps(policy)) {
        if (n > B::kLargest) continue;
        SCOPED_TRACE(to_string(map) + ", n = " + std::to_string(n));
        body(map, n);
      }
}

/// Covariances from different seeds.
template <typename T>
Batch<T> crowd(std::int64_t batch, std::int64_t n) {
  Batch<T> all(batch, n);
  for (std::int64_t b = 0; b < batch; ++b)
    all.set(b, wishart(n, 4 * n, std::uint64_t(b + 1)).matrix(0));
  return all;
}

/// The map of spread covariances.
template <typename B, typename T>
void expect_the_references_map(const LayerMap& map, std::int64_t n) {
  const Batch<T> covariance = as<T>(spread_covariance(n));
  const Mapped<double> truth = mapped_by_reference(map, as<double>(covariance));
  const Mapped<T> ours = LayerMatrixBy<B, T>{}.forward(map, covariance);
  EXPECT_EQ(ours.rank, truth.rank);
  EXPECT_LE(largest_difference(ours.result, truth.result),
            rounding<T>(n, largest_entry(truth.result)) * amplification(truth));
}

/// Gradients under every rule from the CPU's state, which is bitwise the same for the reference. Rounding in between is
/// divided by the gaps.
template <typename B, typename T>
void expect_the_references_gradients(const LayerMap& map, const Batch<T>& covariance) {
  const std::int64_t n = covariance.n;
  const Batch<T> weight = as<T>(random_matrices(1, n, 4));
  const Mapped<T> m = LayerMatrixBy<Cpu, T>{}.forward(map, covariance);
  for (const SpectralRule& rule :
       {SpectralRule(Exact{}), SpectralRule(Analytic{}), SpectralRule(PowerIteration{}),
        SpectralRule(Taylor{}), SpectralRule(Lorentzian{}),
        SpectralRule(Masked{.tolerance = 10 * kEps<T>})}) {
    SCOPED_TRACE(to_string(rule));
    const Batch<double> truth = gradient_by_reference(map, rule, covariance, m, weight);
    const Batch<T> ours = LayerMatrixBy<B, T>{}.backward(map, rule, covariance, m, weight);
    EXPECT_EQ(all_finite(ours), all_finite(truth));
    if (!all_finite(truth)) continue;
    const double size = largest_entry(truth) + amplification(m) * largest_entry(m.result);
    EXPECT_LE(largest_difference(ours, truth), rounding<T>(n, size));
    EXPECT_TRUE(exactly_symmetric(ours));
  }
}

template <typename Case>
class LayerMatrixContract : public ::testing::Test {};
TYPED_TEST_SUITE_P(LayerMatrixContract);

TYPED_TEST_P(LayerMatrixContract, ForwardIsTheReference) {
  using B = typename TypeParam::Backend;
  using T = typename TypeParam::Element;
  for_layer_maps<B>({1, 2, 5, 9, 16, 17, 31, 33, 64, 65, 100}, expect_the_references_map<B, T>);
}

TYPED_TEST_P(LayerMatrixContract, EveryRulesGradientIsTheReferences) {
  using B = typename TypeParam::Backend;
  using T = typename TypeParam::Element;
  for_layer_maps<B>({1, 2, 3, 4, 5, 8, 16, 17, 32, 33, 48, 64, 65, 100, 130},
                    [](const LayerMap& map, std::int64_t n) {
                      const Batch<T> covariance = as<T>(spread_covariance(n));
                      expect_the_references_gradients<B>(map, covariance);
                    });
}

// A covariance of fewer samples than channels has values on both sides of eps, by rounding. Here they are far below it.
TYPED_TEST_P(LayerMatrixContract, BelowEpsTheGradientIsTheReferencesUnderEveryRule) {
  using B = typename TypeParam::Backend;
  using T = typename TypeParam::Element;
  for_layer_maps<B>({5, 8, 16, 33, 64, 65, 100}, [](const LayerMap& map, std::int64_t n) {
    for (const Batch<T>& covariance : {as<T>(beyond_positive(n)), as<T>(with_dead_channels(n))}) {
      const Mapped<T> m = LayerMatrixBy<Cpu, T>{}.forward(map, covariance),
                      there = LayerMatrixBy<B, T>{}.forward(map, covariance);
      EXPECT_EQ(there.rank, m.rank);
      for (std::size_t i = 0; i < m.values.size(); ++i)
        EXPECT_NEAR(there.values[i], m.values[i], rounding<T>(n, double(m.values[0])));
      expect_the_references_gradients<B>(map, covariance);
    }
  });
}

template <typename T>
std::vector<std::pair<std::string, Batch<T>>> degenerate_covariances(std::int64_t n) {
  const auto one = spectrum(n, [](double i) { return i == 0 ? 1.0 : 0.0; });
  return {{"zero", Batch<T>(1, n)},
          {"eps identity", as<T>(diagonal(std::vector<double>(std::size_t(n), 1e-4)))},
          {"all ones", Batch<T>(1, n, T(1))},
          {"rank one", as<T>(with_spectrum(one, 3))},
          {"few samples", as<T>(wishart(n, (n + 3) / 4, 3))},
          // Rounding makes zero eigenvalues negative, by much more than eps.
          {"few large samples", as<T>(scaled(wishart(n, (n + 3) / 4, 3), 1e8))},
          {"tiny", as<T>(scaled(wishart(n, 4 * n, 3), 1e-25))}};
}

TYPED_TEST_P(LayerMatrixContract, DegenerateCovariancesGiveFiniteResultsAndGradients) {
  using B = typename TypeParam::Backend;
  using T = typename TypeParam::Element;
  for_layer_maps<B>({1, 2, 16, 33, 70}, [](const LayerMap& map, std::int64_t n) {
    const Batch<T> weight = as<T>(random_matrices(1, n, 4));
    for (const auto& [name, covariance] : degenerate_covariances<T>(n)) {
      SCOPED_TRACE(name);
      const LayerMatrixBy<B, T> there;
      const Mapped<T> m = there.forward(map, covariance);
      EXPECT_TRUE(all_finite(m.result));
      EXPECT_TRUE(1 <= m.rank[0] && m.rank[0] <= n);
      for (const SpectralRule& rule : {SpectralRule(Exact{}), SpectralRule(PowerIteration{}),
                                       SpectralRule(Taylor{}), SpectralRule(Masked{})})
        EXPECT_TRUE(all_finite(there.backward(map, rule, covariance, m, weight)));
    }
  });
}

TYPED_TEST_P(LayerMatrixContract, NaNStaysWithItsMatrix) {
  using B = typename TypeParam::Backend;
  using T = typename TypeParam::Element;
  for_layer_maps<B>({6, 16, 20, 64, 66}, [](const LayerMap& map, std::int64_t n) {
    const LayerMatrixBy<B, T> there;
    const Batch<T> good = crowd<T>(7, n), weight = as<T>(random_matrices(7, n, 4));
    Batch<T> bad = good;
    bad(1, 4, 2) = std::numeric_limits<T>::quiet_NaN();
    const Mapped<T> clean = there.forward(map, good), spoilt = there.forward(map, bad);
    const Batch<T> clean_slope = there.backward(map, Exact{}, good, clean, weight),
                   slope = there.backward(map, Exact{}, bad, spoilt, weight);
    for (std::int64_t b = 0; b < 7; ++b) {
      if (b == 1) continue;
      EXPECT_TRUE(bitwise_equal(clean.result.matrix(b), spoilt.result.matrix(b), n * n));
      EXPECT_TRUE(bitwise_equal(clean_slope.matrix(b), slope.matrix(b), n * n));
      EXPECT_EQ(clean.rank[std::size_t(b)], spoilt.rank[std::size_t(b)]);
    }
    for (std::int64_t k = 0; k < n * n; ++k) {
      ASSERT_TRUE(std::isnan(spoilt.result.matrix(1)[k]));
      ASSERT_TRUE(std::isnan(slope.matrix(1)[k]));
    }
    EXPECT_EQ(spoilt.rank[1], 1);
  });
}

TYPED_TEST_P(LayerMatrixContract, AMatrixOfABatchIsTheMatrixAlone) {
  using B = typename TypeParam::Backend;
  using T = typename TypeParam::Element;
  const LayerMatrixBy<B, T> there;
  for (const auto& [n, batch] : {std::pair<std::int64_t, std::int64_t>{4, 7},
                                 {4, 300},
                                 {16, 7},
                                 {16, 300},
                                 {20, 300},
                                 {40, 7}}) {
    const Batch<T> all = crowd<T>(batch, n), weight = as<T>(random_matrices(batch, n, 4));
    for (const LayerMap& map : maps(LeadingEnergy{0.9})) {
      SCOPED_TRACE(to_string(map) + ", n = " + std::to_string(n));
      const Mapped<T> m = LayerMatrixBy<Cpu, T>{}.forward(map, all);
      const Batch<T> slope = there.backward(map, Exact{}, all, m, weight);
      for (const std::int64_t b : {std::int64_t(0), batch / 2, batch - 1}) {
        Mapped<T> one(1, n);
        one.values.assign(m.values.begin() + b * n, m.values.begin() + (b + 1) * n);
        one.vectors.set(0, m.vectors.matrix(b));
        one.rank = {m.rank[std::size_t(b)]};
        Batch<T> covariance(1, n), gradient(1, n);
        covariance.set(0, all.matrix(b));
        gradient.set(0, weight.matrix(b));
        const Batch<T> alone = there.backward(map, Exact{}, covariance, one, gradient);
        EXPECT_TRUE(bitwise_equal(alone.matrix(0), slope.matrix(b), n * n));
      }
    }
  }
}

/// The lower triangle alone, with gaps, gives the same bits; and so does each of these.
template <typename B, typename T>
void expect_the_same_bits(const std::vector<LayerMatrixBy<B, T>>& others) {
  for (const std::int64_t n : {5, 12, 32, 64, 66})
    for (const LayerMap& map : maps(Algorithm1{.energy = 0.9})) {
      SCOPED_TRACE(to_string(map) + ", n = " + std::to_string(n));
      const Batch<T> covariance = crowd<T>(9, n), weight = as<T>(random_matrices(9, n, 4));
      Batch<T> lower = covariance;
      for (std::int64_t b = 0; b < 9; ++b)
        for (std::int64_t i = 0; i < n; ++i)
          for (std::int64_t j = i + 1; j < n; ++j) lower(b, i, j) = T(1e9);
      const LayerMatrixBy<B, T> plain;
      const Mapped<T> m = plain.forward(map, covariance);
      const Batch<T> slope = plain.backward(map, Exact{}, covariance, m, weight);
      for (const LayerMatrixBy<B, T>& other : others) {
        const Mapped<T> again = other.forward(map, lower);
        EXPECT_TRUE(bitwise_equal(again.result.data, m.result.data));
        EXPECT_TRUE(bitwise_equal(again.values, m.values));
        EXPECT_EQ(again.rank, m.rank);
        EXPECT_TRUE(
            bitwise_equal(other.backward(map, Exact{}, lower, again, weight).data, slope.data));
      }
    }
}

TYPED_TEST_P(LayerMatrixContract, EmptyShapesAndErrors) {
  using B = typename TypeParam::Backend;
  using T = typename TypeParam::Element;
  const LayerMatrixBy<B, T> there;
  for (const LayerMap& map : maps(Algorithm1{}))
    for (const Batch<T>& nothing : {Batch<T>(0, 5), Batch<T>(3, 0)}) {
      const Mapped<T> m = there.forward(map, nothing);
      EXPECT_TRUE(m.result.data.empty());
      for (const std::int64_t rank : m.rank) EXPECT_EQ(rank, 0);
      EXPECT_TRUE(there.backward(map, Exact{}, nothing, m, nothing).data.empty());
    }
  const Batch<T> covariance(2, 3);
  const Mapped<T> m = there.forward(Zca{}, covariance);
  EXPECT_THROW(there.backward(Zca{}, Exact{}, covariance, m, Batch<T>(2, 4)), Error);
  EXPECT_THROW(there.forward(Zca{-1}, covariance), Error);
}

REGISTER_TYPED_TEST_SUITE_P(LayerMatrixContract, ForwardIsTheReference,
                            EveryRulesGradientIsTheReferences,
                            BelowEpsTheGradientIsTheReferencesUnderEveryRule,
                            DegenerateCovariancesGiveFiniteResultsAndGradients,
                            NaNStaysWithItsMatrix, AMatrixOfABatchIsTheMatrixAlone,
                            EmptyShapesAndErrors);

}  // namespace keel::testing
