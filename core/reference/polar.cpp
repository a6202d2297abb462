#include "keel/polar.h"

#include <algorithm>
#include <vector>

#include "formulas/polar_dense.h"
#include "keel/svd.h"

namespace keel::reference {
namespace {

DensePolar<double> factors_of(Rectangles<const double> matrices, std::int64_t index,
                              PolarKind kind) {
  const std::int64_t m = matrices.rows, n = matrices.columns, k = std::min(m, n);
  std::vector<double> values(std::size_t(k), 0), left(std::size_t(m * k)),
      right(std::size_t(k * n));
  svd({matrices[index], 1, m, n, matrices.row_stride, 0}, values.data(),
      contiguous(left.data(), 1, m, k), contiguous(right.data(), 1, k, n));
  return {m, n, kind, values.data(), left.data(), right.data()};
}

}  // namespace

void polar(Rectangles<const double> matrices, PolarKind kind, Rectangles<double> result,
           double* margin, PolarFactors<double> factors) {
  require_polar_shapes("keel::reference::polar", "result", matrices, kind, result);
  require_polar_factors("keel::reference::polar", matrices, factors);
  for (std::int64_t b = 0; b < matrices.batch; ++b) {
    const DensePolar<double> one = factors_of(matrices, b, kind);
    std::vector<double> product(std::size_t(matrices.rows * matrices.columns));
    one.multiply(product);
    store_packed(product, result, b);
    if (margin != nullptr) margin[b] = one.margin(kind);
    if (factors) one.give(factors.values + b * one.k, factors.right[b], factors.right.row_stride);
  }
}

void polar_backward(Rectangles<const double> matrices, Rectangles<const double> dL_dresult,
                    PolarKind kind, Rectangles<double> dL_dmatrix) {
  check_polar_backward("keel::reference::polar_backward", matrices, kind, dL_dresult, dL_dmatrix);
  for (std::int64_t b = 0; b < matrices.batch; ++b) {
    std::vector<double> g = load_packed(dL_dresult, b);
    factors_of(matrices, b, kind).backward(g);
    store_packed(g, dL_dmatrix, b);
  }
}

}  // namespace keel::reference
