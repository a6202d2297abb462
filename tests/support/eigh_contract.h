#pragma once

// The contract in keel/eigh.h, for every backend.

#include <algorithm>
#include <utility>

#include "keel/error.h"
#include "support/backend.h"
#include "support/eigen_quality.h"
#include "support/solve.h"
#include "support/spectrum_zoo.h"
#include "support/tolerance.h"

namespace keel::testing {

/// n and batch.
using SizeAndBatch = std::pair<std::int64_t, std::int64_t>;

/// The sizes that each test takes on a backend: those on both sides of a limit between its solvers.
template <typename Backend>
struct EighSizes;

/// One call, with poisoned outputs, so that missing writes show.
template <typename Backend, typename T>
struct EighProblem {
  template <typename U>
  using Numbers = typename Backend::template Numbers<U>;

  std::int64_t batch, n;
  Numbers<T> matrices;
  Numbers<RealOf<T>> values{std::vector<RealOf<T>>(std::size_t(batch * n), RealOf<T>(77))};
  Numbers<T> vectors{std::vector<T>(std::size_t(batch * n * n), T(77))};
  Numbers<EighStatus> status{std::vector<EighStatus>(std::size_t(batch), EighStatus(9))};

  explicit EighProblem(const Batch<T>& m) : batch(m.batch), n(m.n), matrices(m.data) {}
  void queue(const typename Backend::Way& way = Backend::way(),
             EighOrder order = EighOrder::descending) {
    Backend::template eigh<T>(way, contiguous<const T>(matrices.data(), batch, n), values.data(),
                              contiguous(vectors.data(), batch, n), order, status.data());
  }
  Solved<T> solved() {
    Solved<T> s{values.back(), Batch<T>(batch, n), status.back()};
    s.vectors.data = vectors.back();
    return s;
  }
};

template <typename Backend, typename T>
Solved<T> solve_by(const Batch<T>& m, EighOrder order = EighOrder::descending) {
  EighProblem<Backend, T> problem(m);
  problem.queue(Backend::way(), order);
  return problem.solved();
}

template <typename T>
void expect_right(const Batch<T>& m, const Solved<T>& s) {
  for (std::int64_t b = 0; b < m.batch; ++b) {
    const RealOf<T>* values = s.values.data() + b * m.n;
    const EigenQuality quality = eigen_quality(m.n, m.matrix(b), values, s.vectors.matrix(b));
    ASSERT_LE(quality.residual, rounding<RealOf<T>>(m.n, 1)) << "matrix " << b;
    ASSERT_LE(quality.orthogonality, rounding<RealOf<T>>(m.n, 1)) << "matrix " << b;
  }
}

template <typename T>
void expect_ordered_and_signed(const Batch<T>& m, const Solved<T>& s) {
  for (std::int64_t b = 0; b < m.batch; ++b)
    for (std::int64_t j = 0; j < m.n; ++j) {
      if (j > 0) {
        ASSERT_GE(s.values[std::size_t(b * m.n + j - 1)], s.values[std::size_t(b * m.n + j)]);
      }
      T peak = 0;
      for (std::int64_t i = 0; i < m.n; ++i) {
        const T x = s.vectors(b, i, j);
        // The sizes of complex numbers are rounded. Among equal ones we take the one that is real.
        const double size = double(std::abs(x)), most = double(std::abs(peak)),
                     noise = kIsComplex<T> ? 4 * kEps<RealOf<T>> * most : 0;
        const bool prefers = std::imag(x) == 0 && std::imag(peak) != 0;
        if (size > (prefers ? most - noise : std::imag(peak) == 0 ? most + noise : most)) peak = x;
      }
      ASSERT_GT(std::real(peak), 0) << "matrix " << b << ", vector " << j;
      ASSERT_EQ(std::imag(peak), 0) << "matrix " << b << ", vector " << j;
    }
}

template <typename T>
void expect_same_bits(const Solved<T>& a, const Solved<T>& b) {
  EXPECT_TRUE(bitwise_equal(a.values, b.values));
  EXPECT_TRUE(bitwise_equal(a.vectors.data, b.vectors.data));
}

inline std::string name(const SizeAndBatch& size) {
  return "n = " + std::to_string(size.first) + ", batch = " + std::to_string(size.second);
}

template <typename Case>
class EighContract : public ::testing::Test {};
TYPED_TEST_SUITE_P(EighContract);

TYPED_TEST_P(EighContract, EverySizeAndBatch) {
  using B = typename TypeParam::Backend;
  using T = typename TypeParam::Element;
  for (const auto& size : EighSizes<B>::template of_batches<T>()) {
    SCOPED_TRACE(name(size));
    const Batch<T> m = random_hermitian<T>(size.second, size.first, 7);
    const Solved<T> s = solve_by<B>(m);
    expect_right(m, s);
    expect_ordered_and_signed(m, s);
    for (const EighStatus status : s.status) EXPECT_EQ(status, EighStatus::converged);
  }
}

TYPED_TEST_P(EighContract, TheZooInOneBatch) {
  using B = typename TypeParam::Backend;
  using T = typename TypeParam::Element;
  for (const std::int64_t n : EighSizes<B>::template of_zoos<T>()) {
    const auto zoo = zoo_of<T>(n);
    Batch<T> m(std::int64_t(zoo.size()), n);
    for (std::size_t b = 0; b < zoo.size(); ++b) m.set(std::int64_t(b), zoo[b].matrix.matrix(0));
    const Solved<T> s = solve_by<B>(m);
    expect_ordered_and_signed(m, s);
    for (std::size_t b = 0; b < zoo.size(); ++b) {
      SCOPED_TRACE(zoo[b].name + ", n = " + std::to_string(n));
      const Solved<T> alone = solve_by<B>(zoo[b].matrix);
      for (const auto* result : {&s, &alone}) {
        const std::int64_t at = result == &s ? std::int64_t(b) : 0;
        const EigenQuality quality = eigen_quality(
            n, zoo[b].matrix.matrix(0), result->values.data() + at * n, result->vectors.matrix(at));
        EXPECT_LE(quality.orthogonality, rounding<RealOf<T>>(n, 1));
        const double floor = zoo[b].name == "denormal" ? 1.0 / 32 : 0;
        EXPECT_LE(quality.residual, rounding<RealOf<T>>(n, 1) + floor);
      }
    }
  }
}

TYPED_TEST_P(EighContract, AscendingIsDescendingBackwards) {
  using B = typename TypeParam::Backend;
  using T = typename TypeParam::Element;
  for (const auto& size : EighSizes<B>::template of_few<T>()) {
    SCOPED_TRACE(name(size));
    Batch<T> m = random_hermitian<T>(size.second, size.first, 21);
    if (m.n > 2 && m.n <= 150) m.set(0, zoo_of<T>(m.n).back().matrix.matrix(0));
    expect_same_bits(backwards(solve_by<B>(m)), solve_by<B>(m, EighOrder::ascending));
  }
}

TYPED_TEST_P(EighContract, ReadsTheLowerTriangleOnly) {
  using B = typename TypeParam::Backend;
  using T = typename TypeParam::Element;
  for (const auto& size : EighSizes<B>::template of_few<T>()) {
    SCOPED_TRACE(name(size));
    Batch<T> m = random_hermitian<T>(size.second, size.first, 9);
    const Solved<T> before = solve_by<B>(m);
    for (std::int64_t b = 0; b < m.batch; ++b)
      for (std::int64_t i = 0; i < m.n; ++i)
        for (std::int64_t j = i; j < m.n; ++j) {
          if (i < j) m(b, i, j) = not_a_number<T>();
          if constexpr (kIsComplex<T>) m(b, i, j).imag(not_a_number<RealOf<T>>());
        }
    expect_same_bits(before, solve_by<B>(m));
  }
}

TYPED_TEST_P(EighContract, StridesAreRespectedAndTheStatusMayBeLeftOut) {
  using B = typename TypeParam::Backend;
  using T = typename TypeParam::Element;
  for (const auto& size : EighSizes<B>::template of_strided<T>()) {
    SCOPED_TRACE(name(size));
    const Batch<T> m = random_hermitian<T>(size.second, size.first, 10);
    const Solved<T> packed = solve_by<B>(m);
    BatchIn<B::template Numbers, T> matrices(m, 3), vectors(Batch<T>(m.batch, m.n), 5);
    typename B::template Numbers<RealOf<T>> values(packed.values);
    const Matrices<T> from = matrices.view();
    B::template eigh<T>(
        B::way(), Matrices<const T>{from.data, from.batch, m.n, from.row_stride, from.batch_stride},
        values.data(), vectors.view(), EighOrder::descending, nullptr);
    EXPECT_TRUE(bitwise_equal(vectors.back().data, packed.vectors.data));
    EXPECT_TRUE(bitwise_equal(values.back(), packed.values));
  }
}

TYPED_TEST_P(EighContract, BatchMatesDoNotMatter) {
  using B = typename TypeParam::Backend;
  using T = typename TypeParam::Element;
  for (const auto& [n, batch] : EighSizes<B>::template of_mates<T>()) {
    SCOPED_TRACE(name(SizeAndBatch{n, batch}));
    const Batch<T> m = random_hermitian<T>(batch, n, 11);
    const Solved<T> before = solve_by<B>(m);
    Batch<T> other = m;
    for (std::int64_t b = 0; b < batch; ++b) {
      if (b % 5 == 1) other(b, n - 1, 0) = not_a_number<T>();
      if (b % 5 == 2) other(b, n - 1, n - 1) = std::numeric_limits<RealOf<T>>::infinity();
      if (b % 5 == 3) std::fill(other.matrix(b), other.matrix(b) + n * n, T(0));
      if (b % 5 == 4)
        for (std::int64_t k = 0; k < n * n; ++k) other.matrix(b)[k] *= RealOf<T>(1e30);
    }
    const Solved<T> after = solve_by<B>(other);
    for (std::int64_t b = 0; b < batch; ++b) {
      const T *x = before.vectors.matrix(b), *y = after.vectors.matrix(b);
      const EighStatus status = after.status[std::size_t(b)];
      if (b % 5 == 0) {
        EXPECT_TRUE(bitwise_equal(x, y, n * n)) << "matrix " << b;
        EXPECT_TRUE(bitwise_equal(before.values.data() + b * n, after.values.data() + b * n, n));
      } else if (b % 5 <= 2) {
        EXPECT_EQ(status, EighStatus::not_finite);
        for (std::int64_t k = 0; k < n * n; ++k) EXPECT_TRUE(is_nan(y[k]));
        for (std::int64_t i = 0; i < n; ++i)
          EXPECT_TRUE(std::isnan(after.values[std::size_t(b * n + i)]));
      } else {
        EXPECT_EQ(status, EighStatus::converged) << "matrix " << b;
      }
    }
  }
}

TYPED_TEST_P(EighContract, PlaceInTheBatchDoesNotMatter) {
  using B = typename TypeParam::Backend;
  using T = typename TypeParam::Element;
  for (const auto& [n, batch] : EighSizes<B>::template of_mates<T>()) {
    const Batch<T> m = random_hermitian<T>(batch, n, 12);
    Batch<T> moved(batch, n);
    for (std::int64_t b = 0; b < batch; ++b) moved.set((b + 13) % batch, m.matrix(b));
    const Solved<T> s = solve_by<B>(m), t = solve_by<B>(moved);
    for (std::int64_t b = 0; b < batch; ++b) {
      const std::int64_t there = (b + 13) % batch;
      EXPECT_TRUE(bitwise_equal(s.values.data() + b * n, t.values.data() + there * n, n))
          << "n = " << n << ", matrix " << b;
      EXPECT_TRUE(bitwise_equal(s.vectors.matrix(b), t.vectors.matrix(there), n * n))
          << "n = " << n << ", matrix " << b;
    }
  }
}

TYPED_TEST_P(EighContract, LonelyRowsKeepTheirEigenvaluesToTheLastBit) {
  using B = typename TypeParam::Backend;
  using T = typename TypeParam::Element;
  const auto eps = RealOf<T>(1e-4);
  for (const auto& [n, batch] : EighSizes<B>::template of_lonely<T>()) {
    SCOPED_TRACE(name(SizeAndBatch{n, batch}));
    Batch<T> m = random_hermitian<T>(batch, n, 5);
    for (std::int64_t b = 0; b < batch; ++b)
      for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t j = 0; j < n; ++j)
          if (i % 3 == 1 || j % 3 == 1) m(b, i, j) = i == j ? T(eps) : T(0);
    const Solved<T> s = solve_by<B>(m);
    expect_right(m, s);
    expect_ordered_and_signed(m, s);
    for (std::int64_t b = 0; b < batch; ++b) {
      EXPECT_GE(std::count(s.values.begin() + b * n, s.values.begin() + (b + 1) * n, eps),
                (n + 1) / 3);
      EXPECT_EQ(unit_columns(s.vectors, b, [](std::int64_t i) { return i % 3 == 1; }), (n + 1) / 3);
    }
  }
}

TYPED_TEST_P(EighContract, EmptyShapesAndErrors) {
  using B = typename TypeParam::Backend;
  using T = typename TypeParam::Element;
  solve_by<B>(Batch<T>(0, 5));
  for (const EighStatus status : solve_by<B>(Batch<T>(3, 0)).status)
    EXPECT_EQ(status, EighStatus::converged);
  // Shapes that disagree, and one that is none. Nothing is read.
  std::vector<T> somewhere(32);
  std::vector<RealOf<T>> values(32);
  const auto call = [&](const Matrices<const T>& from, const Matrices<T>& to) {
    B::template eigh<T>(B::way(), from, values.data(), to, EighOrder::ascending, nullptr);
  };
  EXPECT_THROW(
      call(contiguous<const T>(somewhere.data(), 2, 3), contiguous(somewhere.data(), 2, 4)), Error);
  EXPECT_THROW(call({nullptr, -1, 3, 3, 9}, {nullptr, -1, 3, 3, 9}), Error);
}

REGISTER_TYPED_TEST_SUITE_P(EighContract, EverySizeAndBatch, TheZooInOneBatch,
                            AscendingIsDescendingBackwards, ReadsTheLowerTriangleOnly,
                            StridesAreRespectedAndTheStatusMayBeLeftOut, BatchMatesDoNotMatter,
                            PlaceInTheBatchDoesNotMatter,
                            LonelyRowsKeepTheirEigenvaluesToTheLastBit, EmptyShapesAndErrors);

}  // namespace keel::testing
