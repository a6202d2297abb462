// The CUDA solver whose threads share a matrix, run on the host: by one thread, and by as many as a block has, with
// the warp sums and barriers of a block.

#include "cuda/svd/jacobi/math.h"

#include <gtest/gtest.h>

#include <limits>

#include "support/svd_results.h"
#include "support/team_on_host.h"

namespace keel::testing {
namespace {

/// The memory of one matrix and its results. Each part is a separate, poisoned allocation, so that reads past its end
/// or before a write show.
template <typename T>
struct JacobiProblem {
  using Layout = cuda::SvdLayout<T>;
  using Pack = cuda::SvdPack<T>;
  const Rectangle<T>& a;
  bool wide = a.rows < a.columns;
  Layout layout{int(std::max(a.rows, a.columns)), int(std::min(a.rows, a.columns))};
  std::vector<Pack> rotated = part(layout.rotated()), columns = part(layout.columns()),
                    left = part(layout.left()), numbers = part(layout.numbers());
  std::vector<int> places = std::vector<int>(std::size_t(layout.places()), -1);
  Factors<T> f{1, a.rows, a.columns};

  explicit JacobiProblem(const Rectangle<T>& matrix) : a(matrix) {}

  static std::vector<Pack> part(std::int64_t count) {
    Pack poison;
    for (T& x : poison.at) x = std::numeric_limits<T>::quiet_NaN();
    return std::vector<Pack>(std::size_t(count / Layout::kPack) + 1, poison);
  }

  template <typename Team, typename LongTeam>
  void solve(const Team& team, const LongTeam& long_team) {
    cuda::TeamSvd<T, Team, LongTeam> solver(
        team, long_team, layout,
        {rotated[0].at, columns[0].at, left[0].at, numbers[0].at, places.data()});
    const cuda::SvdSource<T> source{a.data.data(), wide ? 1 : a.columns, wide ? a.columns : 1};
    const bool finite = solver.solve(source);
    if (team.thread() == 0)
      f.status[0] = !finite              ? SvdStatus::not_finite
                    : solver.converged() ? SvdStatus::converged
                                         : SvdStatus::not_converged;
    if (!finite) return;
    store_factors(solver, f);
  }
};

template <typename T>
Factors<T> by_a_team(const Rectangle<T>& a, bool all_held = false) {
  JacobiProblem<T> problem(a);
  const TeamOfOne<false> any_length;
  if (all_held)
    problem.solve(TeamOfOne<true>{}, any_length);
  else
    problem.solve(any_length, any_length);
  return problem.f;
}

template <int LANES, int LONG_LANES, int HELD, typename T>
Factors<T> by_a_block(const Rectangle<T>& a, int threads) {
  JacobiProblem<T> problem(a);
  using Team = ThreadOnHost<LANES, HELD>;
  on_a_block<Team>(threads, [&](const Team& team) {
    problem.solve(team, ThreadOnHost<LONG_LANES, HELD>{team.block, team.at});
  });
  return problem.f;
}

template <typename T>
class SvdJacobiOnCuda : public ::testing::Test {};
using SvdJacobiOnCudaTypes = ::testing::Types<float, double>;
TYPED_TEST_SUITE(SvdJacobiOnCuda, SvdJacobiOnCudaTypes);

TYPED_TEST(SvdJacobiOnCuda, TheZooInEveryShape) {
  using T = TypeParam;
  for (const auto& [m, n] : std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 1},
                                                                               {1, 5},
                                                                               {7, 1},
                                                                               {4, 4},
                                                                               {5, 3},
                                                                               {3, 5},
                                                                               {8, 8},
                                                                               {9, 9},
                                                                               {60, 3},
                                                                               {3, 60},
                                                                               {17, 33},
                                                                               {32, 32},
                                                                               {65, 40},
                                                                               {72, 72}})
    for (const auto& [name, exact] : rectangle_zoo(m, n)) {
      SCOPED_TRACE(name + ", " + std::to_string(m) + " x " + std::to_string(n));
      const Rectangle<T> matrix = as<T>(exact);
      for (const bool all_held : {false, true})
        expect_decomposition(matrix, by_a_team(matrix, all_held));
    }
}

// Slow: the rounding residue of every second column lies between larger columns and takes many sweeps to sort.
TYPED_TEST(SvdJacobiOnCuda, EveryMatrixIsSolved) {
  using T = TypeParam;
  const std::int64_t n = 256;
  Rectangle<double> steep = random_rectangle(n, n, 4);
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j)
      steep(i, j) = steep(i, j / 2 * 2) * std::pow(0.9, double(j));
  const Rectangle<T> matrix = as<T>(steep);
  expect_decomposition(matrix, by_a_team(matrix));
}

TYPED_TEST(SvdJacobiOnCuda, SmallValuesOfSteepMatricesHaveTheirDigits) {
  using T = TypeParam;
  const double step = sizeof(T) == 4 ? 0.05 : 1e-3;
  for (const std::int64_t n : {4, 8, 12})
    expect_digits_where_steep<T>(n + 3, n, step,
                                 [](const Rectangle<T>& matrix) { return by_a_team(matrix); });
}

// Fewer groups than pairs, more than pairs, groups without a column, columns shorter than their lanes.
TYPED_TEST(SvdJacobiOnCuda, AsManyThreadsAsABlockHas) {
  using T = TypeParam;
  // Only a few, because many waiting threads are slow.
  const Rectangle<T> low = as<T>(rectangle_zoo(9, 9)[3].matrix),
                     tall = as<T>(random_rectangle(40, 7, 1));
  expect_decomposition(low, by_a_block<4, 4, 1>(low, 32));
  expect_decomposition(low, by_a_block<8, 8, 2>(low, 64));
  expect_decomposition(tall, by_a_block<4, 32, 1>(tall, 96));
  expect_decomposition(tall, by_a_block<16, 32, 1>(tall, 64));
}

TYPED_TEST(SvdJacobiOnCuda, MoreRowsThanAreSorted) {
  using T = TypeParam;
  const Rectangle<T> matrix = as<T>(random_rectangle(1500, 3, 4));
  expect_decomposition(matrix, by_a_team(matrix));
  Rectangle<T> broken = matrix;
  broken(1400, 2) = std::numeric_limits<T>::quiet_NaN();
  EXPECT_EQ(by_a_team(broken).status[0], SvdStatus::not_finite);
}

}  // namespace
}  // namespace keel::testing
