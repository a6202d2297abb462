#include "keel/thin_product.h"

#include <algorithm>

#include "eigh_large_kernels.h"
#include "instantiate.h"
#include "keel/error.h"

namespace keel::cpu {
namespace {

/// Columns of A at a time: their part of x or y stays in the cache while the rows pass.
constexpr std::int64_t kThinColumns = 1024;
constexpr std::int64_t kThinRows = 64;  ///< rows of a piece for one thread

}  // namespace

template <typename T>
void thin_product(Rectangles<const T> a, Side side, Rectangles<const T> x, Rectangles<T> y,
                  const Executor& executor) {
  const std::int64_t m = a.rows, n = a.columns, count = x.rows;
  const bool left = side == Side::left;
  if (x.batch != a.batch || y.batch != a.batch || y.rows != count || x.columns != (left ? m : n) ||
      y.columns != (left ? n : m))
    throw Error("keel::thin_product: expected vectors that fit the matrix");
  const auto& kernels = large_kernels<T>();
  // A thread owns some entries of y. Splitting by sizes alone keeps results independent of the executor.
  const std::int64_t width = left ? kThinColumns / 2 : kThinRows;
  const std::int64_t pieces = (y.columns + width - 1) / width;
  executor(a.batch * pieces, [&](std::int64_t index) {
    const std::int64_t b = index / pieces, first = index % pieces * width;
    const std::int64_t mine = std::min(width, y.columns - first);
    T* const out = y[b] + first;
    for (std::int64_t c = 0; c < count; ++c) std::fill_n(out + c * y.row_stride, mine, T(0));
    if (left)
      return kernels.thin_left(m, mine, a[b] + first, a.row_stride, count, x[b], x.row_stride, out,
                               y.row_stride);
    for (std::int64_t j = 0; j < n; j += kThinColumns)
      kernels.thin_right(mine, std::min(kThinColumns, n - j), a[b] + first * a.row_stride + j,
                         a.row_stride, count, x[b] + j, x.row_stride, out, y.row_stride);
  });
}

#define KEEL_STAGES(T) KEEL_STAGE(thin_product, T)
KEEL_FOR_REAL(KEEL_STAGES)
#undef KEEL_STAGES

}  // namespace keel::cpu
