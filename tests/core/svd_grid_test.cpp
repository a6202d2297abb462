// The tiles from which several blocks compute singular values, run on the host.

#include "cuda/svd/polish/grid/angles.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>

#include "support/rectangles.h"
#include "support/team_on_host.h"

namespace keel::testing {
namespace {

using GridThread = ThreadOnHost<32, 1>;

template <typename T>
class SvdGrid : public ::testing::Test {};
using SvdGridTypes = ::testing::Types<float, double>;
TYPED_TEST_SUITE(SvdGrid, SvdGridTypes);

/// Numbers whose neighbours are what a matrix must not read: not a number.
template <typename T>
struct GridNumbers {
  std::vector<cuda::GridFour<T>> memory;
  T* first;

  /// Lines from `offset` on, `stride` apart.
  GridNumbers(std::int64_t lines, std::int64_t stride, std::int64_t offset = 0)
      : memory(std::size_t((lines * stride + offset) / 4 + 2)), first(memory[0].at + offset) {
    for (auto& four : memory)
      for (T& x : four.at) x = std::numeric_limits<T>::quiet_NaN();
  }
};

/// Whether every entry of a product comes out of its tiles as it should. Lines lie along the summed index, or across it.
template <typename T, bool LEFT_ALONG, bool RIGHT_ALONG>
void expect_product(int rows, int columns, int depth, int gap, int offset) {
  SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(depth) + " x " +
               std::to_string(columns) + ", apart " + std::to_string(gap));
  const Rectangle<double> left = random_rectangle(rows, depth, 3),
                          right = random_rectangle(depth, columns, 4);
  const auto fill = [&](bool along, int lines_across, const auto& entry) {
    const int lines = along ? lines_across : depth, length = along ? depth : lines_across;
    GridNumbers<T> numbers(lines, length + gap, offset);
    for (int line = 0; line < lines; ++line)
      for (int at = 0; at < length; ++at)
        numbers.first[line * (length + gap) + at] = T(along ? entry(line, at) : entry(at, line));
    return numbers;
  };
  const GridNumbers<T> a = fill(LEFT_ALONG, rows, [&](int i, int k) { return left(i, k) * 8; }),
                       b = fill(RIGHT_ALONG, columns, [&](int j, int k) { return right(k, j); });
  const auto factor = [&](bool along, int across, const T* data, T scale) {
    const int lines = along ? across : depth, length = along ? depth : across;
    return cuda::GridFactor<T>{data, length + gap, length, lines, scale, scale / 2};
  };
  const auto l = factor(LEFT_ALONG, rows, a.first, T(0.5)),
             r = factor(RIGHT_ALONG, columns, b.first, T(2));
  EXPECT_EQ(l.fours, gap % 4 == 0 && offset == 0 && l.length % 4 == 0);
  using Tile = cuda::GridTile<T>;
  const std::int64_t stride = rows + gap;
  GridNumbers<T> to(columns, stride, offset);
  for (int top = 0; top < rows; top += 32)
    for (int first = 0; first < columns; first += 32) {
      Tile tile;
      for (auto& part : tile.parts)
        for (auto& row : part)
          for (T& x : row) x = std::numeric_limits<T>::quiet_NaN();
      on_a_block<GridThread>(Tile::kThreads, [&](const GridThread& thread) {
        tile.template multiply<LEFT_ALONG, RIGHT_ALONG>(thread, depth, top, first, l, r);
        thread.sync();
        typename Tile::Own own;
        for (int w = 0; w < Tile::kOwn; ++w) own.at[w] = tile.sum_of_own(thread.at, w);
        Tile::write_own(thread.at, top, first, own, to.first, stride, rows, columns);
      });
    }
  for (int j = 0; j < columns; ++j) {
    for (int i = 0; i < rows; ++i) {
      double exact = 0, size = 0;
      for (int k = 0; k < depth; ++k) {
        const double term = double(T(left(i, k))) * double(T(right(k, j)));
        exact += 2 * term;
        size += 2 * std::abs(term);
      }
      ASSERT_NEAR(to.first[j * stride + i], exact, size * depth * kEps<T>) << i << ", " << j;
    }
    for (int i = rows; i < stride && gap > 0; ++i)
      ASSERT_TRUE(std::isnan(to.first[j * stride + i])) << "written behind the end";
  }
}

TYPED_TEST(SvdGrid, ProductsOfAnyShape) {
  using T = TypeParam;
  // Whole tiles by fours; edges by fours; fours, but not of all terms; singly, for their length, distance and place.
  for (const auto& [rows, columns, depth, gap, offset] :
       std::vector<std::array<int, 5>>{{64, 32, 128, 0, 0},
                                       {36, 40, 80, 4, 0},
                                       {32, 36, 44, 0, 0},
                                       {33, 35, 37, 0, 0},
                                       {32, 32, 32, 1, 0},
                                       {32, 32, 48, 4, 1}}) {
    expect_product<T, false, false>(rows, columns, depth, gap, offset);
    expect_product<T, true, false>(rows, columns, depth, gap, offset);
    expect_product<T, false, true>(rows, columns, depth, gap, offset);
    expect_product<T, true, true>(rows, columns, depth, gap, offset);
  }
}

TYPED_TEST(SvdGrid, AnglesAreThoseOfTheFormula) {
  using T = TypeParam;
  for (const auto& shape : std::vector<std::pair<int, int>>{{64, 64}, {50, 37}}) {
    const int m = shape.first, n = shape.second;
    const std::int64_t height = m + n;
    const Rectangle<double> random = random_rectangle(m, n, 7);
    GridNumbers<T> x(n, height);
    // Nearly orthogonal, of sizes that differ.
    for (int j = 0; j < n; ++j)
      for (int i = 0; i < m; ++i)
        x.first[j * height + i] = T((i == j ? 1 + 0.1 * j : 0) + 1e-3 * random(i, j));
    const cuda::GridFactor<T> columns{x.first, height, m, n};
    std::vector<T> angles(std::size_t(n * n), std::numeric_limits<T>::quiet_NaN());
    cuda::GridFound<T> found{};
    for (int top = 0; top < n; top += 32)
      for (int first = 0; first < n; first += 32) {
        cuda::GridAngles<T> look;
        constexpr int kThreads = cuda::GridTile<T>::kThreads;
        std::vector<cuda::GridFound<T>> of_thread(kThreads);
        on_a_block<GridThread>(kThreads, [&](const GridThread& thread) {
          look.multiply(thread, columns, top, first);
          of_thread[std::size_t(thread.at)] = look.measure(thread.at, n, top, first, angles.data());
        });
        for (const auto& each : of_thread) found.add(each);
      }
    EXPECT_GT(found.rotates, T(0));
    double sum = 0, cosines = 0, moved = 0;
    for (int i = 0; i < n; ++i)
      for (int j = 0; j < n; ++j) {
        const T angle = angles[std::size_t(j * n + i)];
        EXPECT_EQ(angle, -angles[std::size_t(i * n + j)]);  // to the last bit
        if (i == j) continue;
        double w = 0, own = 0, other = 0;
        for (int k = 0; k < m; ++k) {
          const double a = x.first[i * height + k], b = x.first[j * height + k];
          w += a * b;
          own += b * b;
          other += a * a;
        }
        const double expected = -w / (other - own);
        EXPECT_NEAR(angle, expected, 64 * kEps<T> * std::max(1.0, 1 / std::abs(other - own)));
        sum += expected * expected;
        cosines += w * w / (own * other);
        moved += expected * expected * other / own;
      }
    EXPECT_NEAR(found.angles, sum, 1e-3 * sum);
    EXPECT_NEAR(found.cosines, cosines, 1e-3 * cosines);
    EXPECT_NEAR(found.moved, moved, 1e-3 * moved);
  }
}

}  // namespace
}  // namespace keel::testing
