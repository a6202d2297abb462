// Tests the contract in keel/thin_product.h.

#include "keel/thin_product.h"

#include <gtest/gtest.h>

#include "keel/error.h"
#include "support/random.h"
#include "support/tolerance.h"

namespace keel::testing {
namespace {

/// A batch of two matrices in rows with room to spare, and its products with `count` vectors.
template <typename T>
void check_thin_product(std::int64_t m, std::int64_t n, std::int64_t count, Side side) {
  const std::int64_t in = side == Side::left ? m : n, out = side == Side::left ? n : m;
  const std::int64_t stride = n + 3, batch = 2;
  const auto a = as<T>(Random(1).normals(batch * m * stride)),
             x = as<T>(Random(2).normals(batch * count * in));
  std::vector<T> y(std::size_t(batch * count * out), T(7)), again = y;
  const Rectangles<const T> matrix{a.data(), batch, m, n, stride, m * stride};
  const auto vectors = contiguous<const T>(x.data(), batch, count, in);
  cpu::thin_product<T>(matrix, side, vectors, contiguous(y.data(), batch, count, out));
  cpu::thin_product<T>(matrix, side, vectors, contiguous(again.data(), batch, count, out),
                       threads(3));
  EXPECT_EQ(y, again);
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t c = 0; c < count; ++c)
      for (std::int64_t i = 0; i < out; ++i) {
        double sum = 0, size = 0;
        for (std::int64_t j = 0; j < in; ++j) {
          const auto [row, column] = side == Side::left ? std::pair(j, i) : std::pair(i, j);
          const double term =
              double(matrix[b][row * stride + column]) * double(vectors[b][c * in + j]);
          sum += term;
          size += std::abs(term);
        }
        ASSERT_NEAR(double(y[std::size_t((b * count + c) * out + i)]), sum,
                    rounding<T>(in, 1) * size / 8)
            << m << " x " << n << ", " << count << " vectors, entry " << c << ", " << i;
      }
}

TEST(ThinProduct, IsTheProductAtEverySize) {
  for (const Side side : {Side::right, Side::left})
    for (const std::int64_t m : {0, 1, 3, 4, 67, 130})
      for (const std::int64_t n : {0, 1, 5, 16, 67, 1100})
        for (const std::int64_t count : {0, 1, 4, 7}) {
          check_thin_product<float>(m, n, count, side);
          check_thin_product<double>(m, n, count, side);
        }
}

TEST(ThinProduct, VectorsMustFit) {
  const std::vector<double> a(6), x(3);
  std::vector<double> y(3);
  EXPECT_THROW(
      cpu::thin_product<double>(contiguous(a.data(), 1, 2, 3), Side::left,
                                contiguous(x.data(), 1, 1, 3), contiguous(y.data(), 1, 1, 3)),
      Error);
}

}  // namespace
}  // namespace keel::testing
