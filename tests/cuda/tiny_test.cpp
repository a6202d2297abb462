// Batches of small matrices that are large enough to give each matrix one thread: the same contracts, checked against
// the kernels for smaller batches. Needs a GPU.

#include <gtest/gtest.h>

#include "batch_on_device.h"
#include "keel/gradient_rule.h"
#include "keel/spectral.h"
#include "support/eigen_quality.h"
#include "support/every.h"
#include "support/solve.h"
#include "support/spectrum_zoo.h"

namespace keel::testing {
namespace {

/// Not a multiple of the block size.
constexpr std::int64_t kMany = 8192 + 77;

/// Repeats the matrices of `few`.
template <typename T>
Batch<T> repeated(const Batch<T>& few) {
  Batch<T> many(kMany, few.n);
  for (std::int64_t b = 0; b < kMany; ++b) many.set(b, few.matrix(b % few.batch));
  return many;
}
template <typename T>
std::vector<T> repeated(const std::vector<T>& few) {
  std::vector<T> many;
  const std::int64_t n = std::int64_t(few.size());
  for (std::int64_t k = 0; k < n * kMany; ++k) many.push_back(few[std::size_t(k % n)]);
  return many;
}

constexpr std::int64_t kRandom = 41;

/// Random matrices, followed by the zoo.
template <typename T>
Batch<T> some(std::int64_t n) {
  const Batch<T> random = as<T>(random_symmetric(kRandom, n, 7));
  const auto zoo = spectrum_zoo<T>(n);
  Batch<T> all(random.batch + std::int64_t(zoo.size()), n);
  for (std::int64_t b = 0; b < random.batch; ++b) all.set(b, random.matrix(b));
  for (std::size_t k = 0; k < zoo.size(); ++k)
    all.set(random.batch + std::int64_t(k), zoo[k].matrix.matrix(0));
  return all;
}

template <typename T>
Solved<T> eigh_on_device(const Batch<T>& m, EighOrder order = EighOrder::descending,
                         bool in_graph = false, std::int64_t gap = 0) {
  BatchOnDevice<T> matrices(m, gap), vectors(Batch<T>(m.batch, m.n, T(77)), 2 * gap);
  OnDevice<T> values(std::vector<T>(std::size_t(m.batch * m.n), T(77)));
  OnDevice<EighStatus> status(std::vector<EighStatus>(std::size_t(m.batch), EighStatus(9)));
  run(in_graph, [&](const Stream& stream) {
    cuda::eigh<T>(matrices.view(), values.data(), vectors.view(), order, status.data(), stream);
  });
  return {values.back(), vectors.back(), status.back()};
}

template <typename T>
class CudaTiny : public ::testing::Test {};
using CudaTinyTypes = ::testing::Types<float, double>;
TYPED_TEST_SUITE(CudaTiny, CudaTinyTypes);

TYPED_TEST(CudaTiny, EighIsGoodAndItsPlaceDoesNotMatter) {
  using T = TypeParam;
  for (const std::int64_t n : {1, 2, 3, 4}) {
    const Batch<T> few = some<T>(n);
    const std::int64_t kinds = few.batch;
    const auto zoo = spectrum_zoo<T>(n);
    const Solved<T> s = eigh_on_device(repeated(few));
    for (std::int64_t b = 0; b < kinds; ++b) {
      const bool is_denormal = b >= kRandom && zoo[std::size_t(b - kRandom)].name == "denormal";
      SCOPED_TRACE("n = " + std::to_string(n) + ", matrix " + std::to_string(b));
      const T* const values = s.values.data() + b * n;
      const EigenQuality quality = eigen_quality(n, few.matrix(b), values, s.vectors.matrix(b));
      EXPECT_LE(quality.residual, rounding<T>(n, 1) + (is_denormal ? 1.0 / 32 : 0));
      EXPECT_LE(quality.orthogonality, rounding<T>(n, 1));
      EXPECT_EQ(s.status[std::size_t(b)], EighStatus::converged);
      for (std::int64_t j = 0; j < n; ++j) {
        EXPECT_GE(values[std::max<std::int64_t>(j - 1, 0)], values[j]);
        T peak = 0;
        for (std::int64_t i = 0; i < n; ++i)
          if (std::abs(s.vectors(b, i, j)) > std::abs(peak)) peak = s.vectors(b, i, j);
        EXPECT_GT(peak, 0);
      }
    }
    for (std::int64_t b = kinds; b < kMany; ++b) {
      ASSERT_TRUE(bitwise_equal(s.values.data() + b * n, s.values.data() + b % kinds * n, n)) << b;
      ASSERT_TRUE(bitwise_equal(s.vectors.matrix(b), s.vectors.matrix(b % kinds), n * n)) << b;
      ASSERT_EQ(s.status[std::size_t(b)], EighStatus::converged);
    }
  }
}

TYPED_TEST(CudaTiny, EighKeepsTheRestOfItsContract) {
  using T = TypeParam;
  constexpr T kNaN = std::numeric_limits<T>::quiet_NaN();
  for (const std::int64_t n : {1, 2, 3, 4}) {
    SCOPED_TRACE("n = " + std::to_string(n));
    Batch<T> many = repeated(some<T>(n));
    const Solved<T> plain = eigh_on_device(many);
    const Solved<T> up = backwards(eigh_on_device(many, EighOrder::ascending));
    EXPECT_TRUE(bitwise_equal(up.values, plain.values));
    EXPECT_TRUE(bitwise_equal(up.vectors.data, plain.vectors.data));
    // A graph, gaps between rows and matrices, nothing above the diagonal read, two non-finite batch-mates.
    for (std::int64_t b = 0; b < kMany; ++b)
      for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t j = i + 1; j < n; ++j) many(b, i, j) = kNaN;
    many(5, n - 1, 0) = kNaN;
    many(kMany - 1, 0, 0) = std::numeric_limits<T>::infinity();
    const Solved<T> other = eigh_on_device(many, EighOrder::descending, true, 3);
    for (std::int64_t b = 0; b < kMany; ++b) {
      const bool broken = b == 5 || b == kMany - 1;
      ASSERT_EQ(other.status[std::size_t(b)],
                broken ? EighStatus::not_finite : EighStatus::converged);
      if (broken) {
        for (std::int64_t k = 0; k < n; ++k)
          EXPECT_TRUE(std::isnan(other.values[std::size_t(b * n + k)]));
        for (std::int64_t k = 0; k < n * n; ++k)
          EXPECT_TRUE(std::isnan(other.vectors.matrix(b)[k]));
      } else {
        ASSERT_TRUE(bitwise_equal(other.values.data() + b * n, plain.values.data() + b * n, n));
        ASSERT_TRUE(bitwise_equal(other.vectors.matrix(b), plain.vectors.matrix(b), n * n));
      }
    }
  }
}

/// Checks the results for `many`, one thread per matrix, against those of small batches.
template <typename T>
void expect_as_few(const Batch<T>& many, const Batch<T>& few) {
  const std::int64_t n = few.n;
  for (std::int64_t b = 0; b < kMany; ++b) {
    if (b >= few.batch) {
      ASSERT_TRUE(bitwise_equal(many.matrix(b), many.matrix(b % few.batch), n * n)) << b;
      continue;
    }
    double size = 0;
    for (std::int64_t k = 0; k < n * n; ++k)
      size = larger(size, std::abs(double(few.matrix(b)[k])));
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        ASSERT_NEAR(many(b, i, j), few(b, i, j), rounding<T>(n, 4 * size)) << b;
        ASSERT_EQ(many(b, i, j), many(b, j, i));
      }
  }
}

TYPED_TEST(CudaTiny, GradientsAreThoseOfSmallBatches) {
  using T = TypeParam;
  for (const std::int64_t n : {1, 2, 3, 4}) {
    const Batch<T> m = as<T>(random_symmetric(31, n, 17));
    const Solved<T> s = solve(m);
    const Batch<T> g = as<T>(random_matrices(31, n, 18));
    const std::vector<T> h = as<T>(Random(19).normals(31 * n));
    const auto call = [&](const GradientRule& rule, const std::vector<T>& l, const Batch<T>& v,
                          const std::vector<T>* dl, const Batch<T>* dv) {
      OnDevice<T> values(l), slopes(dl ? *dl : std::vector<T>{});
      BatchOnDevice<T> vectors(v, 1), along(dv ? *dv : Batch<T>(), 2);
      BatchOnDevice<T> out(Batch<T>(v.batch, n, T(-77)), 3);
      cuda::eigh_backward<T>(rule, values.data(), vectors.view(), dl ? slopes.data() : nullptr,
                             dv ? along.view() : Matrices<T>{}, out.view());
      return out.back();
    };
    const std::vector<T> many_l = repeated(s.values), many_h = repeated(h);
    const Batch<T> many_v = repeated(s.vectors), many_g = repeated(g);
    for (const GradientRule& rule : every<GradientRule>()) {
      SCOPED_TRACE(to_string(rule) + ", n = " + std::to_string(n));
      expect_as_few(call(rule, many_l, many_v, &many_h, &many_g),
                    call(rule, s.values, s.vectors, &h, &g));
    }
    const GradientRule rule = Masked{};
    expect_as_few(call(rule, many_l, many_v, nullptr, &many_g),
                  call(rule, s.values, s.vectors, nullptr, &g));
    expect_as_few(call(rule, many_l, many_v, &many_h, nullptr),
                  call(rule, s.values, s.vectors, &h, nullptr));
  }
}

TYPED_TEST(CudaTiny, FunctionsAndTheirGradientsAreThoseOfSmallBatches) {
  using T = TypeParam;
  using Kind = SpectralFunction::Kind;
  const SpectralFunction functions[] = {{Kind::one}, {Kind::sqrt}, {Kind::inv_sqrt},  {Kind::inv},
                                        {Kind::log}, {Kind::exp},  {Kind::power, 2.5}};
  for (const std::int64_t n : {1, 2, 3, 4}) {
    Batch<T> m(31, n);
    for (std::int64_t b = 0; b < m.batch; ++b)
      m.set(b, wishart(n, 2 * n + 2, std::uint64_t(b)).matrix(0));
    const Solved<T> s = solve(m);
    const Batch<T> g = as<T>(random_matrices(31, n, 28));
    const std::vector<T> many_l = repeated(s.values);
    const Batch<T> many_v = repeated(s.vectors), many_g = repeated(g);
    for (const std::int64_t kept : {std::int64_t(1), n}) {
      const auto forward = [&](const SpectralFunction& f, const std::vector<T>& l,
                               const Batch<T>& v) {
        OnDevice<T> values(l);
        OnDevice<std::int64_t> rank(std::vector<std::int64_t>(std::size_t(v.batch), kept));
        BatchOnDevice<T> vectors(v, 1), out(Batch<T>(v.batch, n, T(-77)), 2);
        cuda::spectral<T>(f, values.data(), vectors.view(), rank.data(), out.view());
        return out.back();
      };
      const auto backward = [&](const SpectralFunction& f, const SpectralRule& rule,
                                const std::vector<T>& l, const Batch<T>& v, const Batch<T>& c) {
        OnDevice<T> values(l);
        OnDevice<std::int64_t> rank(std::vector<std::int64_t>(std::size_t(v.batch), kept));
        BatchOnDevice<T> vectors(v, 1), along(c, 2), out(Batch<T>(v.batch, n, T(-77)), 3);
        cuda::spectral_backward<T>(f, rule, values.data(), vectors.view(), rank.data(),
                                   along.view(), out.view());
        return out.back();
      };
      for (const SpectralFunction& f : functions) {
        SCOPED_TRACE(to_string(f) + ", n = " + std::to_string(n) + ", rank " +
                     std::to_string(kept));
        expect_as_few(forward(f, many_l, many_v), forward(f, s.values, s.vectors));
        for (const SpectralRule& rule : {SpectralRule(Exact{}), SpectralRule(Masked{})})
          expect_as_few(backward(f, rule, many_l, many_v, many_g),
                        backward(f, rule, s.values, s.vectors, g));
      }
    }
  }
}

}  // namespace
}  // namespace keel::testing
