#include "keel/polar.h"

#include <algorithm>
#include <vector>

#include "instantiate.h"
#include "keel/svd.h"
#include "polar_dense.h"

namespace keel::cpu {
namespace {

/// Decomposes the batch and calls body(b, factors) for each matrix.
template <typename T, typename Body>
void for_each_factors(Rectangles<const T> matrices, PolarKind kind, const Executor& executor,
                      const Body& body) {
  const std::int64_t m = matrices.rows, n = matrices.columns, k = std::min(m, n),
                     batch = matrices.batch;
  std::vector<T> values(std::size_t(batch * k)), left(std::size_t(batch * m * k)),
      right(std::size_t(batch * k * n));
  svd<T>(matrices, values.data(), contiguous(left.data(), batch, m, k),
         contiguous(right.data(), batch, k, n), nullptr, executor);
  const std::int64_t per_piece = std::max<std::int64_t>(1, 256 / (m * n + 1));
  executor((batch + per_piece - 1) / per_piece, [&](std::int64_t piece) {
    for (std::int64_t b = piece * per_piece; b < std::min(batch, (piece + 1) * per_piece); ++b)
      body(b, PolarFactors<T>(m, n, kind, values.data() + b * k, left.data() + b * m * k,
                              right.data() + b * k * n));
  });
}

template <typename T>
void put(const std::vector<T>& from, Rectangles<T> to, std::int64_t index) {
  for (std::int64_t i = 0; i < to.rows; ++i)
    std::copy_n(from.data() + i * to.columns, to.columns, to[index] + i * to.row_stride);
}

}  // namespace

template <typename T>
void polar(Rectangles<const T> matrices, PolarKind kind, Rectangles<T> result, T* margin,
           const Executor& executor) {
  require_polar_shapes("keel::polar", "result", matrices, kind, result);
  for_each_factors(matrices, kind, executor, [&](std::int64_t b, const PolarFactors<T>& factors) {
    std::vector<T> product(std::size_t(matrices.rows * matrices.columns));
    factors.multiply(product);
    put(product, result, b);
    if (margin != nullptr) margin[b] = factors.margin(kind);
  });
}

template <typename T>
void polar_backward(Rectangles<const T> matrices, Rectangles<const T> dL_dresult, PolarKind kind,
                    Rectangles<T> dL_dmatrix, const Executor& executor) {
  require_polar_shapes("keel::polar_backward", "dL_dresult", matrices, kind, dL_dresult);
  require_polar_shapes("keel::polar_backward", "dL_dmatrix", matrices, kind, dL_dmatrix);
  for_each_factors(matrices, kind, executor, [&](std::int64_t b, const PolarFactors<T>& factors) {
    std::vector<T> g;
    for (std::int64_t i = 0; i < matrices.rows; ++i) {
      const T* const row = dL_dresult[b] + i * dL_dresult.row_stride;
      g.insert(g.end(), row, row + matrices.columns);
    }
    factors.backward(g);
    put(g, dL_dmatrix, b);
  });
}

#define KEEL_STAGES(T) KEEL_STAGE(polar, T) KEEL_STAGE(polar_backward, T)
KEEL_FOR_REAL(KEEL_STAGES)
#undef KEEL_STAGES

}  // namespace keel::cpu
