// The contract in keel/eigh.h, sentence by sentence: on the CPU, and what holds on the CPU alone.

#include <gtest/gtest.h>

#include "cpu/eigh_limits.h"
#include "support/eigh_contract.h"

namespace keel::testing {

template <>
struct EighSizes<Cpu> {
  template <typename T>
  static std::vector<SizeAndBatch> of_batches() {
    auto all = every({0, 1, 2, 3, 4, 5, 8, 9, 15, 16, 17, 31, 32, 33}, {0, 1, 2, 3, 5, 16, 17, 33});
    for (const auto& size : every({63, 64, 65, 95, 96, 127, 128, 129}, {1, 9})) all.push_back(size);
    return all;
  }
  template <typename T>
  static std::vector<std::int64_t> of_zoos() {
    if (kIsComplex<T>) return {1, 2, 3, 8, 31, 32, 33, 65, 128};
    return {1, 2, 4, 9, 32};
  }
  template <typename T>
  static std::vector<SizeAndBatch> of_few() {
    return every({1, 2, 3, 8, 32, 33, 97, 100, 191, 192}, {1, 17});
  }
  template <typename T>
  static std::vector<SizeAndBatch> of_strided() {
    return every({1, 3, 16, 33, 150}, {1, 18});
  }
  template <typename T>
  static std::vector<SizeAndBatch> of_mates() {
    return every({2, 5, 7, 16, 32, 33}, {37});
  }
  template <typename T>
  static std::vector<SizeAndBatch> of_lonely() {
    auto all = every({2, 4, 7, 16, 33, 64}, {1, 40});
    all.emplace_back(250, 1);
    return all;
  }

 private:
  static std::vector<SizeAndBatch> every(const std::vector<std::int64_t>& sizes,
                                         const std::vector<std::int64_t>& batches) {
    std::vector<SizeAndBatch> all;
    for (const std::int64_t n : sizes)
      for (const std::int64_t batch : batches) all.emplace_back(n, batch);
    return all;
  }
};

namespace {

using EveryEighOnCpu = OnFloats<Cpu>;
INSTANTIATE_TYPED_TEST_SUITE_P(OnCpu, EighContract, EveryEighOnCpu);
using EveryHermitianOnCpu = OnComplex<Cpu>;
INSTANTIATE_TYPED_TEST_SUITE_P(OnCpuComplex, EighContract, EveryHermitianOnCpu);

template <typename T>
class EighOnCpu : public ::testing::Test {};
using RealAndComplex = ::testing::Types<float, double, std::complex<float>, std::complex<double>>;
TYPED_TEST_SUITE(EighOnCpu, RealAndComplex);

TYPED_TEST(EighOnCpu, AscendingByPartsByTheFallbackAndByTheReference) {
  Batch<TypeParam> parts(1, 4);
  parts(0, 0, 0) = parts(0, 2, 2) = 2;
  parts(0, 2, 0) = 1;
  parts(0, 1, 1) = -1;
  const std::vector<RealOf<TypeParam>> by_parts =
      solve(parts, serial(), EighOrder::ascending).values;
  const RealOf<TypeParam> expected[] = {-1, 0, 1, 3};
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_NEAR(by_parts[i], expected[i], rounding<RealOf<TypeParam>>(4, 3));
  Solved<TypeParam> s = solve(parts);
  cpu::eigh<TypeParam>(parts.view(), s.values.data(), s.vectors.view(), EighOrder::ascending,
                       nullptr, serial(), cpu::EighLimits{.max_sweeps = 0});
  EXPECT_TRUE(std::is_sorted(s.values.begin(), s.values.end()));
  using Exact = std::conditional_t<kIsComplex<TypeParam>, std::complex<double>, double>;
  const Batch<Exact> m = random_hermitian<Exact>(2, 7, 22);
  expect_same_bits(backwards(solve_by_reference(m)), solve_by_reference(m, EighOrder::ascending));
}

TYPED_TEST(EighOnCpu, ValuesAloneAreTheSame) {
  using T = TypeParam;
  using Value = RealOf<T>;
  for (const std::int64_t n : {1, 2, 3, 16, 64, 130, 270})
    for (const auto& [name, matrix] : zoo_of<T>(n))
      for (const std::int64_t batch : {1, 40}) {
        if (n > 64 && (batch > 1 || (n > 130 && kIsComplex<T>))) continue;
        SCOPED_TRACE(name + ", n = " + std::to_string(n) + ", batch " + std::to_string(batch));
        Batch<T> all(batch, n);
        for (std::int64_t b = 0; b < batch; ++b)
          std::copy(matrix.data.begin(), matrix.data.end(), all.data.begin() + b * n * n);
        if (batch > 1) all(7, n - 1, 0) = not_a_number<T>();
        for (const EighOrder order : {EighOrder::ascending, EighOrder::descending}) {
          const Solved<T> both = solve(all, serial(), order);
          std::vector<Value> alone(both.values.size()), threaded(alone);
          std::vector<EighStatus> status(std::size_t(batch), EighStatus::converged);
          cpu::eigvalsh<T>(all.view(), alone.data(), order, status.data());
          cpu::eigvalsh<T>(all.view(), threaded.data(), order, nullptr, threads(3));
          EXPECT_TRUE(bitwise_equal(alone, threaded));
          EXPECT_EQ(status[std::size_t(batch > 1 ? 7 : 0)],
                    batch > 1 ? EighStatus::not_finite : EighStatus::converged);
          if (n < 24 && !kIsComplex<T>) {
            EXPECT_TRUE(bitwise_equal(alone, both.values));
            continue;
          }
          const Value largest = std::max(std::abs(both.values[0]), std::abs(both.values.back()));
          for (std::size_t i = 0; i < alone.size(); ++i)
            if (std::isnan(both.values[i]))
              EXPECT_TRUE(std::isnan(alone[i]));
            else
              EXPECT_LE(std::abs(alone[i] - both.values[i]),
                        8 * Value(n) * std::numeric_limits<Value>::epsilon() * largest);
        }
      }
}

// The values are the entry, which no rounding may lift beyond the type's range.
template <typename T>
void expect_end_of_range() {
  const T most = std::numeric_limits<T>::max();
  for (const std::int64_t batch : {1, 64}) {
    Batch<T> m(batch, 2);
    for (std::int64_t b = 0; b < batch; ++b) m(b, 0, 1) = m(b, 1, 0) = most;
    const Solved<T> s = solve(m, serial(), EighOrder::descending);
    for (std::size_t b = 0; b < std::size_t(batch); ++b) {
      EXPECT_EQ(s.values[2 * b], most);
      EXPECT_EQ(s.values[2 * b + 1], -most);
    }
  }
}
TEST(EighOnCpuOfReals, TwoByTwoAtTheEndOfTheRange) {
  expect_end_of_range<float>();
  expect_end_of_range<double>();
}

TYPED_TEST(EighOnCpu, TheExecutorDoesNotMatter) {
  for (const auto& [n, batch] :
       {std::pair{4, 100}, {33, 19}, {100, 3}, {130, 1}, {130, 2}, {193, 1}, {390, 2}}) {
    const Batch<TypeParam> m = random_hermitian<TypeParam>(batch, n, 13);
    const Solved<TypeParam> one = solve(m);
    for (const int count : {2, 3}) {
      const Solved<TypeParam> several = solve(m, threads(count));
      EXPECT_TRUE(bitwise_equal(one.values, several.values)) << n;
      EXPECT_TRUE(bitwise_equal(one.vectors.data, several.vectors.data)) << n;
    }
  }
}

// A pack of lanes in which every matrix has parts is solved without lanes.
TYPED_TEST(EighOnCpu, PartsAreTheSameAmongOthersAndAmongThemselves) {
  using T = TypeParam;
  for (const std::int64_t n : {3, 8, 33}) {
    Batch<T> mixed = random_hermitian<T>(64, n, 18);
    for (std::int64_t b = 0; b < 64; ++b)
      for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t j = 0; j < n; ++j)
          if (b % 4 != 0 && i / (b % 4) != j / (b % 4)) mixed(b, i, j) = T(0);
    Batch<T> parts = mixed;
    for (std::int64_t b = 0; b < 64; b += 4) parts.set(b, mixed.matrix(b + 1));
    expect_right(parts, solve(parts));
    expect_ordered_and_signed(parts, solve(parts));
    parts(5, 1, 1) = mixed(5, 1, 1) = not_a_number<T>();
    const Solved<T> among_others = solve(mixed), among_themselves = solve(parts);
    EXPECT_EQ(among_others.status[5], EighStatus::not_finite);
    for (std::int64_t b = 0; b < 64; ++b) {
      if (b % 4 == 0) continue;
      SCOPED_TRACE(b);
      EXPECT_EQ(among_others.status[std::size_t(b)], among_themselves.status[std::size_t(b)]);
      for (std::int64_t i = 0; i < n; ++i) {
        const auto at = std::size_t(b * n + i);
        EXPECT_TRUE(std::isnan(among_others.values[at]) ||
                    among_others.values[at] == among_themselves.values[at]);
        EXPECT_EQ(std::isnan(among_others.values[at]), b == 5);
        for (std::int64_t j = 0; b != 5 && j < n; ++j)
          EXPECT_EQ(among_others.vectors(b, i, j), among_themselves.vectors(b, i, j));
      }
    }
  }
}

TYPED_TEST(EighOnCpu, AloneOrInABatchTheSameToRounding) {
  for (const std::int64_t n : {4, 16, 64}) {
    const Batch<TypeParam> m = as<TypeParam>(wishart(n, 4 * n, 14));
    Batch<TypeParam> copies(33, n);
    for (std::int64_t b = 0; b < 33; ++b) copies.set(b, m.matrix(0));
    const Solved<TypeParam> alone = solve(m), among = solve(copies);
    for (std::size_t i = 0; i < std::size_t(n); ++i)
      EXPECT_NEAR(alone.values[i], among.values[i],
                  rounding<RealOf<TypeParam>>(n, alone.values[0]));
  }
}

TYPED_TEST(EighOnCpu, ScalesFreely) {
  using T = TypeParam;
  for (const std::int64_t n : {2, 6, 33, 150})
    for (const std::int64_t batch : {1, 16}) {
      if (n > 128 && batch > 1) continue;
      const Batch<T> m = random_hermitian<T>(batch, n, 15);
      const Solved<T> s = solve(m);
      for (const int exponent : {-100, -60, 60, 100}) {  // 1e-30 .. 1e30
        Batch<T> moved = m;
        for (T& x : moved.data) x *= std::ldexp(RealOf<T>(1), exponent);
        const Solved<T> t = solve(moved);
        EXPECT_TRUE(bitwise_equal(s.vectors.data, t.vectors.data)) << exponent;
        for (std::size_t k = 0; k < s.values.size(); ++k)
          ASSERT_EQ(std::ldexp(s.values[k], exponent), t.values[k]) << exponent;
      }
    }
}

// One matrix of two rows takes no iterations.
TYPED_TEST(EighOnCpu, TheFallbackAnswersWhatTheBoundLeaves) {
  using T = TypeParam;
  for (const std::int64_t n : {3, 16, 33})
    for (const std::int64_t batch : {1, 20}) {
      const Batch<T> m = random_hermitian<T>(batch, n, 16);
      Solved<T> s = solve(m);
      cpu::eigh<T>(m.view(), s.values.data(), s.vectors.view(), EighOrder::descending,
                   s.status.data(), serial(), cpu::EighLimits{.max_sweeps = 0});
      for (const EighStatus status : s.status) EXPECT_EQ(status, EighStatus::by_fallback);
      expect_right(m, s);
      expect_ordered_and_signed(m, s);
    }
}

TYPED_TEST(EighOnCpu, ManySmallMatrices) {
  const Batch<TypeParam> m = random_hermitian<TypeParam>(65536, 2, 17);
  const Solved<TypeParam> s = solve(m, threads(2));
  expect_right(m, s);
  expect_ordered_and_signed(m, s);
}

TYPED_TEST(EighOnCpu, RealMatricesInComplexNumbers) {
  if constexpr (kIsComplex<TypeParam>) {
    using T = RealOf<TypeParam>;
    for (const std::int64_t n : {1, 2, 3, 8, 33, 64, 100})
      for (const std::int64_t batch : {1, 40}) {
        const Batch<T> m = as<T>(random_symmetric(batch, n, 18));
        const Solved<T> real = solve(m);
        const Solved<TypeParam> s = solve(as<TypeParam>(m));
        for (std::size_t k = 0; k < s.values.size(); ++k)
          ASSERT_NEAR(s.values[k], real.values[k], rounding<T>(n, std::sqrt(double(n))));
        for (const TypeParam& x : s.vectors.data) ASSERT_EQ(x.imag(), 0);
      }
  }
}

// Steep rows end in numbers whose squares are subnormal.
TYPED_TEST(EighOnCpu, SteepMatrices) {
  for (const std::int64_t n : {60, 97, 200})
    for (const double step : {0.05, 0.1, 0.2, 0.8, 4.0}) {
      SCOPED_TRACE(::testing::Message() << "n = " << n << ", step = " << step);
      Batch<TypeParam> m = random_hermitian<TypeParam>(n == 60 ? 16 : 1, n, 19);
      for (std::int64_t b = 0; b < m.batch; ++b)
        for (std::int64_t i = 0; i < n; ++i)
          for (std::int64_t j = 0; j < n; ++j)
            m(b, i, j) *= RealOf<TypeParam>(std::pow(10.0, -step * double(std::max(i, j))));
      const Solved<TypeParam> s = solve(m);
      expect_right(m, s);
      expect_ordered_and_signed(m, s);
    }
}

}  // namespace
}  // namespace keel::testing
