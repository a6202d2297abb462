#include "keel/gradient_rule.h"

#include "formulas/pair_weight.h"
#include "in_chunks.h"
#include "instantiate.h"
#include "layer_matrix_stages.h"
#include "padded_matrix.h"
#include "scratch.h"
#include "scratch_gap.h"
#include "spectral_check.h"

namespace keel::cpu {

namespace {

/// W of pair_weight.h from B, both padded, for pairs with one of the `rank` first eigenvalues. Other
/// entries, and the diagonal, are not written.
template <typename T, typename Weight>
void fill_weights(std::int64_t n, std::int64_t rank, T floor, const Weight& weight, const T* values,
                  const T* b, T* w) {
  const std::int64_t stride = padded<T>(n);
  const T largest = largest_magnitude(n, values, floor);
  for (std::int64_t i = 0; i < rank; ++i)
    for (std::int64_t j = i + 1; j < n; ++j)
      w[i * stride + j] = w[j * stride + i] = weight_above(
          floor, weight, largest, values[i], values[j], b[i * stride + j], b[j * stride + i]);
}

template <typename T>
void clear(std::int64_t n, T* a) {
  std::fill(a, a + n * padded<T>(n), T(0));
}

template <typename T, typename Rule>
void backward_chunk(std::int64_t first, std::int64_t last, T floor, const std::int64_t* rank,
                    const Rule& rule, const T* values, Matrices<const T> vectors,
                    const T* dL_dvalues, Matrices<const T> dL_dvectors, Matrices<T> dL_dmatrix) {
  const std::int64_t n = vectors.n, size = n * padded<T>(n);
  const auto multiply = kernels<T>().multiply;
  Scratch<T> scratch(4 * with_gap<T>(size));
  T* next = scratch;
  T *const v = take(next, size), *const u = take(next, size), *const p = take(next, size),
           *const q = take(next, size);
  clear_padding(n, v);
  clear_padding(n, u);
  for (std::int64_t b = first; b < last; ++b) {
    const T* l = values + b * n;
    load(n, vectors[b], vectors.row_stride, v);
    transpose(n, v, u);
    clear(n, p);
    if (dL_dvectors) {
      load(n, dL_dvectors[b], dL_dvectors.row_stride, p);
      multiply(n, u, p, q);
      clear(n, p);
      fill_weights(n, rank != nullptr ? std::min(rank[b], n) : n, floor, pair_weight<T>(rule, n), l,
                   q, p);
    }
    for (std::int64_t i = 0; i < n; ++i)
      p[i * padded<T>(n) + i] = dL_dvalues ? dL_dvalues[b * n + i] : T(0);
    multiply(n, p, u, q);
    multiply(n, v, q, p);
    symmetrise(n, p);
    store(n, p, dL_dmatrix[b], dL_dmatrix.row_stride);
  }
}

/// A pair of entries above and below the diagonal, and the diagonal, of svd_backward_middle. `left`
/// or `right` may be null.
template <typename T, typename Weight>
void fill_middle(std::int64_t k, const Weight& weight, const T* values, const T* left,
                 std::int64_t left_stride, const T* right, std::int64_t right_stride,
                 const T* dL_dvalues, T* middle, std::int64_t stride) {
  const T largest = largest_magnitude(k, values);
  constexpr std::int64_t kTile = 16;  // rows and columns of a tile stay in the cache
  const auto at = [](const T* of, std::int64_t row_stride, std::int64_t i, std::int64_t j) {
    return of != nullptr ? of[i * row_stride + j] : T(0);
  };
  for (std::int64_t row = 0; row < k; row += kTile)
    for (std::int64_t column = row; column < k; column += kTile)
      for (std::int64_t i = row; i < std::min(k, row + kTile); ++i)
        for (std::int64_t j = std::max(column, i + 1); j < std::min(k, column + kTile); ++j) {
          const T p = at(left, left_stride, i, j), p_mirrored = at(left, left_stride, j, i),
                  q = at(right, right_stride, i, j), q_mirrored = at(right, right_stride, j, i);
          const T together = weight(largest, values[i], values[j], p + q, p_mirrored + q_mirrored);
          const T against = weight.quotient(largest, T(0.5) * ((p - q) - (p_mirrored - q_mirrored)),
                                            values[i] + values[j]);
          middle[i * stride + j] = together + against;
          middle[j * stride + i] = together - against;
        }
  for (std::int64_t i = 0; i < k; ++i)
    middle[i * stride + i] = dL_dvalues != nullptr ? dL_dvalues[i] : T(0);
}

}  // namespace

template <typename T>
void svd_backward_middle(const GradientRule& rule, const T* values, Matrices<const T> left,
                         Matrices<const T> right, const T* dL_dvalues, Matrices<T> middle,
                         const Executor& executor) {
  const char* const operation = "keel::svd_backward_middle";
  validate(rule);
  require_given(operation, "middle", middle);
  require_numbers(operation, "values", values, middle.batch * middle.n);
  require_same_shape_or_null(operation, "left", middle, left);
  require_same_shape_or_null(operation, "right", middle, right);
  const std::int64_t k = middle.n;
  std::visit(
      [&](const auto& chosen) {
        const auto weight = pair_weight<T>(chosen, k);
        in_chunks(middle.batch, k, executor, [&](std::int64_t first, std::int64_t last) {
          for (std::int64_t b = first; b < last; ++b)
            fill_middle(k, weight, values + b * k, left ? left[b] : nullptr, left.row_stride,
                        right ? right[b] : nullptr, right.row_stride,
                        dL_dvalues != nullptr ? dL_dvalues + b * k : nullptr, middle[b],
                        middle.row_stride);
        });
      },
      rule);
}

template <typename T>
void eigh_backward(const GradientRule& rule, const T* values, Matrices<const T> vectors,
                   const T* dL_dvalues, Matrices<const T> dL_dvectors, Matrices<T> dL_dmatrix,
                   const Executor& executor) {
  eigh_backward_above<T>(-std::numeric_limits<T>::infinity(), nullptr, rule, values, vectors,
                         dL_dvalues, dL_dvectors, dL_dmatrix, executor);
}

template <typename T>
void eigh_backward_above(T floor, const std::int64_t* rank, const GradientRule& rule,
                         const T* values, Matrices<const T> vectors, const T* dL_dvalues,
                         Matrices<const T> dL_dvectors, Matrices<T> dL_dmatrix,
                         const Executor& executor) {
  check_eigh_backward("keel::eigh_backward", rule, values, vectors, dL_dvectors, dL_dmatrix);
  std::visit(
      [&](const auto& chosen) {
        in_chunks(vectors.batch, vectors.n, executor, [&](std::int64_t first, std::int64_t last) {
          backward_chunk(first, last, floor, rank, chosen, values, vectors, dL_dvalues, dL_dvectors,
                         dL_dmatrix);
        });
      },
      rule);
}

#define KEEL_STAGES(T)               \
  KEEL_STAGE(eigh_backward, T)       \
  KEEL_STAGE(svd_backward_middle, T) \
  KEEL_STAGE(eigh_backward_above, T)
KEEL_FOR_REAL(KEEL_STAGES)
#undef KEEL_STAGES

}  // namespace keel::cpu
