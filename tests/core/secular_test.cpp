// The arithmetic that divide and conquer has on CUDA and for large matrices on the CPU, run on the host with teams of one:
// every merge must leave values and vectors as good as LAPACK's. Close poles are dropped as on the CPU. CUDA's way, the same
// rotations found in parallel, is in tests/cuda/eigh_test.cpp.

#include "formulas/secular.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "support/team_on_host.h"
#include "support/tolerance.h"

namespace keel::testing {
namespace {

using Alone = TeamOfOne<false>;

/// diag(d) + rho z z^T with its eigenvalues and eigenvectors (columns).
template <typename T>
struct RankOneUpdate {
  std::vector<T> d, z;
  T rho;
  std::vector<T> values, vectors;

  std::size_t size() const { return d.size(); }

  void solve() {
    const int n = int(size());
    std::vector<int> order(size()), source(size()), dropped_source(size()), origin(size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return d[std::size_t(a)] < d[std::size_t(b)]; });
    T largest = rho;
    for (const T x : d) largest = std::max(largest, std::abs(x));
    const T tolerance = 2 * std::numeric_limits<T>::epsilon() * largest;
    std::vector<T> pole(size()), weight(size()), dropped_pole(size()), offset(size()),
        refined(size());
    std::vector<SecularRotation<T>> rotation(size());
    int alive = 0, dropped = 0, rotations = 0;
    for (const int k : order) {
      const std::size_t i = std::size_t(k);
      const bool moves = rho * std::abs(z[i]) > tolerance;
      const std::size_t at = std::size_t(moves ? alive++ : dropped++);
      (moves ? pole : dropped_pole)[at] = d[i];
      (moves ? source : dropped_source)[at] = k;
      if (moves) weight[at] = z[i];
    }
    if (alive > 1)
      drop_close_poles(tolerance, alive, pole.data(), weight.data(), source.data(), dropped,
                       dropped_pole.data(), dropped_source.data(), rotations, rotation.data());
    for (int i = 0; i < alive; ++i) {
      const auto root = secular_root(Alone{}, true, alive, i, pole.data(), weight.data(), rho);
      origin[std::size_t(i)] = root.origin;
      offset[std::size_t(i)] = root.offset;
    }
    for (int j = 0; j < alive; ++j)
      refined[std::size_t(j)] = secular_weight(Alone{}, alive, j, pole.data(), weight.data(),
                                               origin.data(), offset.data());
    values.assign(size(), 0);
    vectors.assign(size() * size(), 0);
    for (int i = 0; i < n; ++i) {
      const std::size_t at = std::size_t(i);
      if (i >= alive) {
        vectors[std::size_t(dropped_source[at - std::size_t(alive)] * n + i)] = 1;
        values[at] = dropped_pole[at - std::size_t(alive)];
        continue;
      }
      const T zero = pole[std::size_t(origin[at])];
      values[at] = zero + offset[at];
      T squares = 0;
      for (int j = 0; j < alive; ++j) {
        const T entry = refined[std::size_t(j)] / ((pole[std::size_t(j)] - zero) - offset[at]);
        vectors[std::size_t(source[std::size_t(j)] * n + i)] = entry;
        squares += entry * entry;
      }
      for (int j = 0; j < n; ++j) vectors[std::size_t(j * n + i)] /= std::sqrt(squares);
    }
    for (int t = rotations - 1; t >= 0; --t)
      for (int i = 0; i < n; ++i) {
        const SecularRotation<T> q = rotation[std::size_t(t)];
        T& x = vectors[std::size_t(q.dropped * n + i)];
        T& y = vectors[std::size_t(q.kept * n + i)];
        const T old_x = x, old_y = y;
        x = q.c * old_x - q.s * old_y;
        y = q.s * old_x + q.c * old_y;
      }
  }

  double residual() const {
    const std::size_t n = size();
    double worst = 0, norm = double(rho);
    for (const T x : d) norm = std::max(norm, std::abs(double(x)));
    for (std::size_t c = 0; c < n; ++c) {
      double along = 0;
      for (std::size_t r = 0; r < n; ++r) along += double(z[r]) * double(vectors[r * n + c]);
      for (std::size_t r = 0; r < n; ++r)
        worst =
            larger(worst, std::abs((double(d[r]) - double(values[c])) * double(vectors[r * n + c]) +
                                   double(rho) * double(z[r]) * along));
    }
    return norm > 0 ? worst / norm : worst;
  }

  double orthogonality() const {
    const std::size_t n = size();
    double worst = 0;
    for (std::size_t a = 0; a < n; ++a)
      for (std::size_t b = 0; b <= a; ++b) {
        double sum = a == b ? -1 : 0;
        for (std::size_t r = 0; r < n; ++r)
          sum += double(vectors[r * n + a]) * double(vectors[r * n + b]);
        worst = larger(worst, std::abs(sum));
      }
    return worst;
  }
};

template <typename T>
class Secular : public ::testing::Test {
 protected:
  void check(const std::string& name, std::vector<T> d, std::vector<T> z, T rho) {
    T squares = 0;
    for (const T x : z) squares += x * x;
    for (T& x : z) x /= std::sqrt(squares);
    RankOneUpdate<T> problem{std::move(d), std::move(z), rho, {}, {}};
    problem.solve();
    const auto n = std::int64_t(problem.size());
    EXPECT_LE(problem.residual(), rounding<T>(n, 0.5)) << name << ", n = " << n;
    EXPECT_LE(problem.orthogonality(), rounding<T>(n, 0.5)) << name << ", n = " << n;
  }
};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(Secular, Types);

TYPED_TEST(Secular, EveryKindOfPolesAndWeights) {
  using T = TypeParam;
  std::mt19937 generator(3);
  std::normal_distribution<double> normal;
  for (const std::size_t n : {1, 2, 3, 7, 16, 33, 64, 128, 256}) {
    const auto filled = [&](auto entry) {
      std::vector<T> x(n);
      for (std::size_t i = 0; i < n; ++i) x[i] = T(entry(double(i)));
      return x;
    };
    const auto any = [&](double) { return normal(generator); };
    const auto one = [](double) { return 1.0; };
    this->check("random", filled(any), filled(any), T(0.7));
    this->check("evenly spaced", filled([](double i) { return i; }), filled(one), T(1));
    this->check("all equal", filled(one), filled(any), T(2));
    this->check("last bits apart", filled([&](double) { return 1 + 1e-7 * normal(generator); }),
                filled(any), T(0.1));
    this->check("graded", filled([](double i) { return std::pow(10.0, -0.2 * i); }),
                filled([](double i) { return std::pow(10.0, -0.1 * i); }), T(1e-3));
    this->check("tiny update", filled(any), filled(any), T(1e-9));
    this->check("one weight", filled(any), filled([](double i) { return i == 0 ? 1.0 : 1e-12; }),
                T(1));
    this->check("clusters",
                filled([&](double i) { return std::fmod(i, 4) + 1e-6 * normal(generator); }),
                filled(any), T(0.3));
  }
}

TYPED_TEST(Secular, RootsLieBetweenTheirPoles) {
  using T = TypeParam;
  const std::vector<T> pole{T(-1), T(0), T(1e-3), T(2)}, z{T(0.5), T(0.5), T(0.5), T(0.5)};
  for (int i = 0; i < 4; ++i) {
    const auto root = secular_root(Alone{}, true, 4, i, pole.data(), z.data(), T(1));
    const T value = pole[std::size_t(root.origin)] + root.offset;
    EXPECT_GT(value, pole[std::size_t(i)]);
    EXPECT_LT(value, i < 3 ? pole[std::size_t(i + 1)] : T(3));
  }
}

}  // namespace
}  // namespace keel::testing
