// Singular values from the eigenvectors of A^T A, as CUDA threads compute them, run on the host.

#include "cuda/svd/polish/math.h"

#include <gtest/gtest.h>

#include <limits>

#include "cuda/plan.h"
#include "keel/eigh.h"
#include "support/svd_results.h"
#include "support/team_on_host.h"

namespace keel::testing {
namespace {

using OnePolisher = TeamOfOne<false>;
using Polisher = ThreadOnHost<8, 1>;

/// The memory of one matrix, poisoned, and its results.
/// The columns of a tile are 4 for a thread alone, and 2 for many.
template <typename T, typename Team>
struct PolishProblem {
  static constexpr int kWide = std::is_same_v<Team, OnePolisher> ? 4 : 2;
  const Rectangle<T>& a;
  bool wide = a.rows < a.columns;
  std::int64_t m = std::max(a.rows, a.columns), n = std::min(a.rows, a.columns);
  cuda::PolishLayout<T> layout{int(m), int(n), kWide};
  std::vector<cuda::SvdPack<T>> memory;
  std::vector<T> square = std::vector<T>(std::size_t(n * n)), vectors = square,
                 values = std::vector<T>(std::size_t(n));
  cuda::SvdSource<T> source{a.data.data(), wide ? 1 : a.columns, wide ? a.columns : 1};
  std::vector<T> stack = std::vector<T>(std::size_t(layout.stack()));
  int exponent = 0, turns = 0;
  Factors<T> f{1, a.rows, a.columns};

  explicit PolishProblem(const Rectangle<T>& matrix) : a(matrix) {}
  bool solved() const { return f.status[0] == SvdStatus::converged; }
  T* poisoned() {
    cuda::SvdPack<T> poison;
    for (T& x : poison.at) x = std::numeric_limits<T>::quiet_NaN();
    memory.assign(std::size_t(layout.numbers() / layout.kPack) + 1, poison);
    return memory[0].at;
  }
  /// Runs the first step for each of its threads.
  bool square_up(const Team& team, T* numbers) {
    cuda::TeamGram<T, kWide, Team> solver(team, layout, numbers);
    int found = 0;
    const bool able = solver.solve(source, found);
    if (team.thread() != 0) return able;
    exponent = found;
    for (std::int64_t i = 0; able && i < n * n; ++i)
      square[std::size_t(i)] = solver(int(i / n), int(i % n));
    return able;
  }
  void decompose() {
    cpu::eigh<T>({square.data(), 1, n, n, n * n}, values.data(), {vectors.data(), 1, n, n, n * n},
                 EighOrder::descending);
  }
  void polish(const Team& team, T* numbers) {
    cuda::TeamPolish<T, kWide, Team> solver(team, layout, numbers);
    solver.load(source, exponent);
    correct(team, solver);
  }
  /// All steps one after another in the same memory, as one launch does, but for A^T A in `product`.
  void all_steps(const Team& team, T* numbers, T* product) {
    cuda::TeamGram<T, kWide, Team> first(team, layout, numbers, product);
    int found = 0;
    if (!first.solve(source, found)) return;
    if (team.thread() == 0) {
      for (std::int64_t i = 0; i < n * n; ++i)
        square[std::size_t(i)] = first(int(i / n), int(i % n));
      decompose();
      // What lies behind X and J may have been overwritten.
      std::fill(numbers + layout.stack(), numbers + layout.numbers(),
                std::numeric_limits<T>::quiet_NaN());
    }
    team.sync();
    cuda::TeamPolish<T, kWide, Team> solver(team, layout, numbers);
    solver.keep(found);
    correct(team, solver);
  }
  void correct(const Team& team, cuda::TeamPolish<T, kWide, Team>& solver) {
    const auto vector = [&](int i, int j) { return vectors[std::size_t(i * n + j)]; };
    cuda::PolishEnd end = solver.solve(vector, turns > 0);
    for (int turned_before = 0; end == cuda::PolishEnd::turn;) {
      solver.pause(stack.data(), [&](int i, int j, T x) { square[std::size_t(i * n + j)] = x; });
      team.sync();
      if (team.thread() == 0) decompose();
      team.sync();
      end = solver.turn(stack.data(), exponent, vector, ++turned_before < turns);
    }
    if (end != cuda::PolishEnd::solved) return;
    if (team.thread() == 0) f.status[0] = SvdStatus::converged;
    store_factors(solver, f);
  }
};

/// Whether it was solved, with at most `turns` further decompositions. If so, checks the result.
template <typename T>
bool is_polished(const Rectangle<T>& a, int turns = 0) {
  PolishProblem<T, OnePolisher> problem(a);
  problem.turns = turns;
  if (!problem.square_up({}, problem.poisoned())) return false;
  problem.decompose();
  problem.polish({}, problem.poisoned());
  if (!problem.solved()) return false;
  expect_decomposition(a, problem.f);
  return true;
}

template <typename T>
class SvdPolish : public ::testing::Test {};
using SvdPolishTypes = ::testing::Types<float, double>;
TYPED_TEST_SUITE(SvdPolish, SvdPolishTypes);

const std::vector<std::pair<std::int64_t, std::int64_t>> kPolishShapes = {
    {5, 5}, {8, 8}, {9, 9}, {12, 20}, {33, 17}, {32, 32}, {65, 40}, {72, 72}};

TYPED_TEST(SvdPolish, TheZooIsSolvedWellOrLeft) {
  using T = TypeParam;
  for (const auto& [m, n] : kPolishShapes)
    for (const auto& [name, exact] : rectangle_zoo(m, n)) {
      SCOPED_TRACE(name + ", " + std::to_string(m) + " x " + std::to_string(n));
      const bool solved = is_polished(as<T>(exact));
      // The matrices it must solve, and those it must leave to the other solver.
      const bool expected = name == "normal" || name == "equal" || name == "identity" ||
                            (m == n && (name == "huge" || name == "tiny"));
      const bool left =
          name == "zero" || name == "rank one" || name == "ones" || name == "dead rows and columns";
      EXPECT_TRUE(solved || !expected);
      EXPECT_TRUE(!solved || !left);
    }
}

TYPED_TEST(SvdPolish, NotFiniteIsLeft) {
  using T = TypeParam;
  Rectangle<T> a = as<T>(random_rectangle(12, 9, 1));
  for (const T bad : {std::numeric_limits<T>::quiet_NaN(), -std::numeric_limits<T>::infinity()}) {
    a(11, 3) = bad;
    EXPECT_FALSE(is_polished(a));
  }
}

TYPED_TEST(SvdPolish, SteepMatricesAreLeft) {
  using T = TypeParam;
  Rectangle<T> by_rows = as<T>(random_rectangle(20, 16, 1)), by_columns = by_rows;
  for (std::int64_t i = 0; i < 20; ++i)
    for (std::int64_t j = 0; j < 16; ++j) {
      by_rows(i, j) *= T(std::pow(0.5, double(i)));
      by_columns(i, j) *= T(std::pow(0.5, double(j)));
    }
  EXPECT_FALSE(is_polished(by_rows));
  EXPECT_FALSE(is_polished(by_columns));
}

// A^T A has too little information about small values, so their vectors come out rotated by any angle.
TYPED_TEST(SvdPolish, SmallNeighboursAreTurned) {
  using T = TypeParam;
  const std::int64_t n = 24;
  const Factors<double> basis = decompose_by_reference(random_rectangle(n, n, 5));
  const double small = 4 * std::sqrt(kEps<T>);
  EXPECT_TRUE(is_polished(as<T>(with_values(basis, [&](std::int64_t i) {
    return i < 20 ? 2 - 0.05 * double(i)
                  : small * (i < 22 ? 10 + 0.1 * double(i) : 2 + 0.01 * double(i));
  }))));
}

TYPED_TEST(SvdPolish, ColumnsThatTheirProductsDoNotTellApartAreTurned) {
  using T = TypeParam;
  for (const auto& [m, n] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{13, 13}, {32, 32}, {64, 64}, {90, 40}}) {
    for (const auto& [name, exact] : uneven_spectra(m, n)) {
      SCOPED_TRACE(name + ", " + std::to_string(m) + " x " + std::to_string(n));
      EXPECT_TRUE(is_polished(as<T>(exact), cuda::kMostTurns));
    }
  }
}

TYPED_TEST(SvdPolish, AsManyThreadsAsABlockHas) {
  using T = TypeParam;
  // Tiles for all threads, threads without a tile, several rounds of rows, several threads per tile, a group per row.
  for (const auto& [m, n] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{13, 13}, {40, 9}, {60, 5}, {8, 8}}) {
    const Rectangle<T> a = as<T>(random_rectangle(m, n, 3));
    PolishProblem<T, Polisher> problem(a);
    T* numbers = problem.poisoned();
    std::vector<char> able(64);
    on_a_block<Polisher>(64, [&](const Polisher& thread) {
      able[std::size_t(thread.at)] = char(problem.square_up(thread, numbers));
    });
    EXPECT_EQ(able, std::vector<char>(64, 1));
    problem.decompose();
    numbers = problem.poisoned();
    on_a_block<Polisher>(64, [&](const Polisher& thread) { problem.polish(thread, numbers); });
    expect_decomposition(a, problem.f);
  }
}

TYPED_TEST(SvdPolish, OneLaunchIsTheSame) {
  using T = TypeParam;
  for (const auto& [m, n] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{13, 13}, {8, 8}, {9, 30}}) {
    const Rectangle<T> a = as<T>(random_rectangle(m, n, 7));
    PolishProblem<T, Polisher> apart(a), together(a);
    T* numbers = apart.poisoned();
    on_a_block<Polisher>(64, [&](const Polisher& thread) { apart.square_up(thread, numbers); });
    apart.decompose();
    numbers = apart.poisoned();
    on_a_block<Polisher>(64, [&](const Polisher& thread) { apart.polish(thread, numbers); });
    ASSERT_TRUE(apart.solved());
    numbers = together.poisoned();
    std::vector<T> product(std::size_t(together.layout.angles()));
    on_a_block<Polisher>(
        64, [&](const Polisher& thread) { together.all_steps(thread, numbers, product.data()); });
    ASSERT_TRUE(together.solved());
    EXPECT_TRUE(bitwise_equal(together.f.values, apart.f.values));
    EXPECT_TRUE(bitwise_equal(together.f.left, apart.f.left));
    EXPECT_TRUE(bitwise_equal(together.f.right, apart.f.right));
  }
}

TYPED_TEST(SvdPolish, ABlockJudgesAsOneThreadDoes) {
  using T = TypeParam;
  // With a group of threads per row, and with more rows than groups.
  for (const auto& [m, n] : std::vector<std::pair<std::int64_t, std::int64_t>>{{8, 7}, {15, 12}})
    for (int which = 0; which < 6; ++which) {
      SCOPED_TRACE(std::to_string(m) + " x " + std::to_string(n) + ", " + std::to_string(which));
      Rectangle<T> a = as<T>(random_rectangle(m, n, 3));
      for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t j = 0; j < n; ++j) {
          if (which == 1 || which == 2) a(i, j) *= std::ldexp(T(1), -int(which == 1 ? i : j));
          // As few large rows as suffice, and one less.
          if ((which == 3 && i >= n) || (which == 4 && i >= n - 1)) a(i, j) *= T(1e-4);
        }
      if (which == 5) a(m - 1, n - 1) = std::numeric_limits<T>::quiet_NaN();
      PolishProblem<T, OnePolisher> alone(a);
      const bool expected = alone.square_up({}, alone.poisoned());
      EXPECT_EQ(expected, which == 0 || which == 3);
      PolishProblem<T, Polisher> together(a);
      T* const numbers = together.poisoned();
      std::vector<char> able(64);
      on_a_block<Polisher>(64, [&](const Polisher& thread) {
        able[std::size_t(thread.at)] = char(together.square_up(thread, numbers));
      });
      EXPECT_EQ(able, std::vector<char>(64, char(expected)));
      if (expected) {
        EXPECT_EQ(together.exponent, alone.exponent);
      }
    }
}

}  // namespace
}  // namespace keel::testing
