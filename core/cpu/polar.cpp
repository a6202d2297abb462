#include "keel/polar.h"

#include <algorithm>
#include <vector>

#include "formulas/polar_dense.h"
#include "instantiate.h"
#include "keel/svd.h"

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
      body(b, DensePolar<T>(m, n, kind, values.data() + b * k, left.data() + b * m * k,
                            right.data() + b * k * n));
  });
}

}  // namespace

template <typename T>
void polar(Rectangles<const T> matrices, PolarKind kind, Rectangles<T> result, T* margin,
           PolarFactors<T> factors, const Executor& executor) {
  require_polar_shapes("keel::polar", "result", matrices, kind, result);
  require_polar_factors("keel::polar", matrices, factors);
  for_each_factors(matrices, kind, executor, [&](std::int64_t b, const DensePolar<T>& one) {
    std::vector<T> product(std::size_t(matrices.rows * matrices.columns));
    one.multiply(product);
    store_packed(product, result, b);
    if (margin != nullptr) margin[b] = one.margin(kind);
    if (factors) one.give(factors.values + b * one.k, factors.right[b], factors.right.row_stride);
  });
}

template <typename T>
void polar_backward(Rectangles<const T> matrices, Rectangles<const T> dL_dresult, PolarKind kind,
                    Rectangles<T> dL_dmatrix, const Executor& executor) {
  check_polar_backward("keel::polar_backward", matrices, kind, dL_dresult, dL_dmatrix);
  for_each_factors(matrices, kind, executor, [&](std::int64_t b, const DensePolar<T>& one) {
    std::vector<T> g = load_packed(dL_dresult, b);
    one.backward(g);
    store_packed(g, dL_dmatrix, b);
  });
}

template <typename T>
void polar_backward_from_factors(Rectangles<const T> result, PolarFactors<const T> factors,
                                 Rectangles<const T> dL_dresult, Rectangles<T> dL_dmatrix,
                                 const Executor& executor) {
  check_polar_from_factors("keel::polar_backward_from_factors", result, factors, dL_dresult,
                           dL_dmatrix);
  const std::int64_t m = result.rows, n = result.columns, k = std::min(m, n);
  executor(result.batch, [&](std::int64_t b) {
    std::vector<T> g = load_packed(dL_dresult, b);
    const std::vector<T> r = load_packed(result, b), right = load_packed(factors.right, b);
    DensePolar<T>::from_factors(m, n, r.data(), factors.values + b * k, right.data()).backward(g);
    store_packed(g, dL_dmatrix, b);
  });
}

#define KEEL_STAGES(T) \
  KEEL_STAGE(polar, T) KEEL_STAGE(polar_backward, T) KEEL_STAGE(polar_backward_from_factors, T)
KEEL_FOR_REAL(KEEL_STAGES)
#undef KEEL_STAGES

}  // namespace keel::cpu
