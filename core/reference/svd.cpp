#include "keel/svd.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "shape.h"
#include "svd_finish.h"

namespace keel::reference {
namespace {

using Wide = long double;
constexpr int kMostSweeps = 60;  // about ten suffice in practice

/// One-sided Jacobi: `columns` of a matrix with m >= n, rotated until they are orthogonal, and the
/// accumulated rotations.
struct OneSided {
  std::int64_t m, n;
  std::vector<std::vector<Wide>> columns, turns;

  static Wide dot(const std::vector<Wide>& x, const std::vector<Wide>& y) {
    return std::inner_product(x.begin(), x.end(), y.begin(), Wide(0));
  }

  bool turn(std::size_t p, std::size_t q) {
    const Wide a = dot(columns[p], columns[p]), b = dot(columns[q], columns[q]),
               g = dot(columns[p], columns[q]);
    const Wide epsilon = std::numeric_limits<Wide>::epsilon() * std::sqrt(Wide(m));
    if (std::abs(g) <= epsilon * std::sqrt(a) * std::sqrt(b)) return false;
    const Wide zeta = (b - a) / (2 * g);
    const Wide t = std::copysign(Wide(1), zeta) / (std::abs(zeta) + std::hypot(Wide(1), zeta));
    const Wide c = 1 / std::hypot(Wide(1), t), s = c * t;
    for (auto* both : {&columns, &turns})
      for (std::size_t i = 0; i < (*both)[p].size(); ++i) {
        const Wide x = (*both)[p][i], y = (*both)[q][i];
        (*both)[p][i] = c * x - s * y;
        (*both)[q][i] = s * x + c * y;
      }
    // After cancellation only rounding noise is left. Rotating it would never converge. Noise that
    // several rotations leave together shrinks from sweep to sweep, until it is zero in a double.
    constexpr Wide kLeast = Wide(std::numeric_limits<double>::denorm_min()) / 2;
    for (const auto& [which, before] : {std::pair(p, a), std::pair(q, b)})
      if (dot(columns[which], columns[which]) <=
          std::max(16 * epsilon * epsilon * before, kLeast * kLeast))
        std::fill(columns[which].begin(), columns[which].end(), Wide(0));
    return true;
  }

  bool sweep() {
    bool turned = false;
    for (std::size_t p = 0; p < columns.size(); ++p)
      for (std::size_t q = p + 1; q < columns.size(); ++q) turned = turn(p, q) || turned;
    return turned;
  }
};

void svd_one(std::int64_t rows, std::int64_t columns, const double* matrix, std::int64_t row_stride,
             double* values, double* left, std::int64_t left_stride, double* right,
             std::int64_t right_stride) {
  // For a wide matrix, decompose the transpose: `u` and `v` are then V and U.
  const bool wide = rows < columns;
  const std::int64_t m = wide ? columns : rows, n = wide ? rows : columns;
  OneSided jacobi{m, n, {}, {}};
  for (std::int64_t j = 0; j < n; ++j) {
    jacobi.columns.emplace_back();
    for (std::int64_t i = 0; i < m; ++i)
      jacobi.columns.back().push_back(wide ? matrix[j * row_stride + i]
                                           : matrix[i * row_stride + j]);
    jacobi.turns.emplace_back(std::size_t(n), Wide(0)).at(std::size_t(j)) = 1;
  }
  for (int sweep = 0; sweep < kMostSweeps && jacobi.sweep(); ++sweep) {
  }
  std::vector<Wide> sizes;
  for (const auto& column : jacobi.columns)
    sizes.push_back(std::sqrt(OneSided::dot(column, column)));
  std::vector<std::size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t i, std::size_t j) { return sizes[i] > sizes[j]; });
  for (std::int64_t k = 0; k < n; ++k) {
    const std::size_t from = order[std::size_t(k)];
    values[k] = double(sizes[from]);
    for (std::int64_t i = 0; i < m; ++i) {
      double& u = wide ? right[k * right_stride + i] : left[i * left_stride + k];
      u = sizes[from] > 0 ? double(jacobi.columns[from][std::size_t(i)] / sizes[from]) : 0;
    }
    for (std::int64_t i = 0; i < n; ++i) {
      double& v = wide ? left[i * left_stride + k] : right[k * right_stride + i];
      v = double(jacobi.turns[from][std::size_t(i)]);
    }
  }
  finish_svd(rows, columns, values, left, left_stride, right, right_stride);
  for (std::int64_t j = 0; j < std::min(rows, columns); ++j)
    fix_sign(rows, columns, j, left, left_stride, right, right_stride);
}

}  // namespace

void svd(Rectangles<const double> matrices, double* values, Rectangles<double> left,
         Rectangles<double> right, SvdStatus* status) {
  check_svd("keel::reference::svd", matrices, values, left, right);
  const std::int64_t k = std::min(matrices.rows, matrices.columns);
  for (std::int64_t b = 0; b < matrices.batch; ++b) {
    bool finite = true;
    for (std::int64_t i = 0; i < matrices.rows; ++i)
      for (std::int64_t j = 0; j < matrices.columns; ++j)
        finite = finite && std::isfinite(matrices[b][i * matrices.row_stride + j]);
    if (finite)
      svd_one(matrices.rows, matrices.columns, matrices[b], matrices.row_stride, values + b * k,
              left[b], left.row_stride, right[b], right.row_stride);
    else
      svd_is_nan(b, k, values, left, right);
    if (status != nullptr) status[b] = finite ? SvdStatus::converged : SvdStatus::not_finite;
  }
}

}  // namespace keel::reference
