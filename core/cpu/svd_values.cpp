// Singular values without vectors.
//
// In float: the eigenvalues of A^T A in double. Their errors are a few double epsilons of the largest. After the square
// root that is less than a float epsilon of the largest singular value, however small a value is. In double: QR if the
// matrix is long, reduction to bidiagonal form, and the values of that.

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "eigh_limits.h"
#include "formulas/scale.h"
#include "instantiate.h"
#include "keel/error.h"
#include "keel/svd.h"
#include "kernels.h"
#include "scratch.h"
#include "shape.h"
#include "svd_bidiagonal.h"

namespace keel::cpu {
namespace {

/// Up to this size, batches in double are solved with their vectors, one matrix per lane.
constexpr std::int64_t kMostWithVectors = 16;
constexpr std::int64_t kMostByHand =
    1024;  ///< terms, for which a product of matrices would be slow
constexpr std::int64_t kFewestThreaded =
    192;  ///< lines of a matrix whose products are shared among threads

/// Long lines are cut into so many pieces, whose results are put together, that threads can share them.
std::int64_t pieces_of_long(std::int64_t count, std::int64_t length) {
  constexpr std::int64_t kNumbers = 1 << 17, kMost = 16;
  return std::clamp<std::int64_t>(std::min(count * length / kNumbers, length / (8 * count)), 1,
                                  kMost);
}

/// The lower triangle of the lines' inner products.
void inner_products(const Lines<float>& lines, double* square, const Executor& executor) {
  const LargeKernels<double>& kernel = large_kernels<double>();
  const std::int64_t n = lines.count, depth = kernel.depth,
                     pieces = pieces_of_long(n, lines.length);
  const UnitScale<double> unit(0);
  if (n * n * lines.length <= kMostByHand) {
    double turned[kMostByHand];
    lines.copy_turned(0, lines.length, unit, turned, n);
    std::fill_n(square, n * n, 0.0);
    for (std::int64_t k = 0; k < lines.length; ++k)
      for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t j = 0; j <= i; ++j)
          square[i * n + j] += turned[k * n + i] * turned[k * n + j];
    return;
  }
  const Scratch<double> partial((pieces - 1) * n * n);
  executor(pieces, [&](std::int64_t p) {
    const Scratch<double> own(n * depth), turned(n * depth), packed(kernel.packed_size(depth, n));
    double* const sum = p == 0 ? square : partial + (p - 1) * n * n;
    const std::int64_t begin = lines.length * p / pieces, end = lines.length * (p + 1) / pieces;
    for (std::int64_t first = begin; first < end; first += depth) {
      const std::int64_t last = std::min(first + depth, end);
      lines.copy(first, last, unit, own, depth);
      lines.copy_turned(first, last, unit, turned, n);
      kernel.pack(last - first, n, turned, n, nullptr, packed);
      constexpr std::int64_t kRows = 48;
      const auto rows = [&](std::int64_t r) {
        const std::int64_t top = r * kRows, bottom = std::min(n, top + kRows);
        kernel.multiply_packed(bottom - top, bottom, last - first, own + top * depth, depth, packed,
                               sum + top * n, n, first == begin ? Into::set : Into::add);
      };
      const std::int64_t parts = (n + kRows - 1) / kRows;
      if (pieces == 1 && n >= kFewestThreaded)
        executor(parts, rows);
      else
        for (std::int64_t r = 0; r < parts; ++r) rows(r);
    }
  });
  for (std::int64_t p = 1; p < pieces; ++p) kernel.add(n * n, partial + (p - 1) * n * n, square);
}

/// The values of `count` matrices from `first` on, by the eigenvalues of A^T A.
void values_by_squares(Rectangles<const float> matrices, std::int64_t first, std::int64_t count,
                       bool in_lanes, float* values, SvdStatus* status, const Executor& executor) {
  const std::int64_t n = std::min(matrices.rows, matrices.columns);
  const Kernels<double>& kernel = kernels<double>();
  const Scratch<double> squares(count * n * n), found(count * n),
      scratch(in_lanes ? kernel.real_lanes.scratch(n) : 0);
  std::vector<EighStatus> solved(std::size_t(count), EighStatus::by_fallback);
  for (std::int64_t i = 0; i < count; ++i)
    inner_products(Lines<float>(matrices, first + i), squares + i * n * n, executor);
  if (in_lanes)
    kernel.real_lanes.solve(0, count, {squares, count, n, n, n * n}, found, {},
                            EighOrder::descending, solved.data(), EighLimits{}.max_sweeps, scratch);
  for (std::int64_t i = 0; i < count; ++i) {
    EighStatus& own = solved[std::size_t(i)];
    if (own == EighStatus::by_fallback)
      eigvalsh<double>({squares + i * n * n, 1, n, n, n * n}, found + i * n, EighOrder::descending,
                       &own, executor);
    status[first + i] =
        own == EighStatus::not_finite ? SvdStatus::not_finite : SvdStatus::converged;
    for (std::int64_t j = 0; j < n; ++j) {
      const double square = found[i * n + j];
      values[(first + i) * n + j] = float(std::sqrt(square < 0 ? 0 : square));
    }
  }
}

/// The values of matrix `index`, by its bidiagonal form.
void values_of_one(Rectangles<const double> matrices, std::int64_t index, double* values,
                   SvdStatus& status, const Executor& executor) {
  const Lines<double> lines(matrices, index);
  const UnitScale<double> unit(lines.largest());
  const std::int64_t n = lines.count;
  status = unit.finite ? SvdStatus::converged : SvdStatus::not_finite;
  if (!unit.finite) {
    std::fill_n(values, n, std::numeric_limits<double>::quiet_NaN());
    return;
  }
  if (lines.is_diagonal()) {
    for (std::int64_t j = 0; j < n; ++j) values[j] = std::abs(lines.diagonal(j));
    std::sort(values, values + n, std::greater<double>());
    return;
  }
  const bool is_long = lines.length >= 2 * n;
  const std::int64_t length = is_long ? n : lines.length, stride = row_stride<double>(length);
  const Scratch<double> work(n * stride), diagonal(n), off_diagonal(n);
  std::fill_n(work.data(), n * stride, 0.0);
  if (is_long) {
    const std::int64_t pieces = pieces_of_long(n, lines.length);
    const Scratch<double> others((pieces - 1) * n * stride);
    std::fill_n(others.data(), (pieces - 1) * n * stride, 0.0);
    executor(pieces, [&](std::int64_t p) {
      TriangularFactor<double> factor(n, p == 0 ? work : others + (p - 1) * n * stride, stride);
      const std::int64_t end = lines.length * (p + 1) / pieces;
      for (std::int64_t first = lines.length * p / pieces; first < end; first += factor.kNumbers) {
        const std::int64_t last = std::min(first + factor.kNumbers, end);
        lines.copy(first, last, unit, factor.lines(), factor.stride());
        factor.take(last - first);
      }
    });
    TriangularFactor<double> all(n, work, stride);
    for (std::int64_t p = 1; p < pieces; ++p)
      for (std::int64_t first = 0; first < n; first += all.kNumbers) {
        const std::int64_t last = std::min(first + all.kNumbers, n);
        for (std::int64_t i = first; i < last; ++i)
          for (std::int64_t j = 0; j < n; ++j)
            all.lines()[j * all.stride() + i - first] = others[((p - 1) * n + i) * stride + j];
        all.take(last - first);
      }
  } else {
    lines.copy(0, length, unit, work, stride);
  }
  Bidiagonalisation<double>(n, length, work, diagonal, off_diagonal, executor).run();
  values_of_bidiagonal<double>(n, diagonal, off_diagonal, values);
  for (std::int64_t j = 0; j < n; ++j) values[j] = unit.up(values[j]);
}

}  // namespace

template <typename T>
void svdvals(Rectangles<const T> matrices, T* values, SvdStatus* status, const Executor& executor) {
  require_given("keel::svdvals", "matrices", matrices);
  const std::int64_t m = matrices.rows, n = std::min(m, matrices.columns), batch = matrices.batch;
  require_numbers("keel::svdvals", "values", values, batch * n);
  std::vector<SvdStatus> own_status;
  if (status == nullptr) {
    own_status.resize(std::size_t(batch));
    status = own_status.data();
  }
  if (n == 0) {
    std::fill_n(status, batch, SvdStatus::converged);
    return;
  }
  const bool in_lanes = solves_in_lanes<double>(n, batch);
  const Executor alone = serial(), &own = batch == 1 ? executor : alone;
  if constexpr (sizeof(T) == sizeof(float)) {
    const std::int64_t pack = in_lanes ? kernels<double>().lanes : 1,
                       some = pack * std::max<std::int64_t>(1, 1024 / (n * n * pack));
    executor((batch + some - 1) / some, [&](std::int64_t p) {
      for (std::int64_t first = p * some; first < std::min(batch, (p + 1) * some); first += pack)
        values_by_squares(matrices, first, std::min(pack, batch - first), in_lanes, values, status,
                          own);
    });
  } else if (in_lanes && n <= kMostWithVectors) {
    const std::int64_t columns = matrices.columns;
    const Scratch<T> left(batch * m * n), right(batch * n * columns);
    svd<T>(matrices, values, contiguous(left.data(), batch, m, n),
           contiguous(right.data(), batch, n, columns), status, executor);
  } else {
    executor(batch,
             [&](std::int64_t b) { values_of_one(matrices, b, values + b * n, status[b], own); });
  }
}

#define KEEL_STAGES(T) KEEL_STAGE(svdvals, T)
KEEL_FOR_REAL(KEEL_STAGES)
#undef KEEL_STAGES

}  // namespace keel::cpu
