#pragma once

// The inner loops of eigh for large matrices, compiled once per instruction set like those of
// kernels.h. The loops may read their vectors up to the next multiple of kReach. What they find
// there must be finite, and zero where stated.

#include <cstdint>

namespace keel::cpu {

/// Symmetric matrices store both triangles of the diagonal blocks of this size, so that loops need
/// no remainder.
inline constexpr std::int64_t kReach = 16;

/// Singular values that are bisected together.
inline constexpr std::int64_t kBisected = 32;

/// A row stride that leaves room for kReach and is never a multiple of 4096 bytes, at which the
/// entries of a column would evict each other from the cache.
template <typename T>
constexpr std::int64_t row_stride(std::int64_t n) {
  const std::int64_t line = 64 / std::int64_t(sizeof(T));
  const std::int64_t lines = (n + 4 * kReach + line - 1) / line;
  return (lines | 1) * line;
}

/// The number of pieces for `count` items, with at least `least` and about `most` items per piece.
/// It is a multiple of 16 if possible, so that threads get equal shares.
constexpr std::int64_t pieces_of(std::int64_t count, std::int64_t least, std::int64_t most) {
  const std::int64_t even = 16 * ((count + 16 * most - 1) / (16 * most));
  const std::int64_t fewest = (count + least - 1) / least;
  return even < fewest ? even : fewest;
}

/// Whether a product overwrites C, is added to it or subtracted from it.
enum class Into : std::uint8_t { set, add, subtract };

template <typename T>
struct LargeKernels {
  // product.h
  std::int64_t depth;  ///< the number of rows of B that are packed together
  std::int64_t (*packed_size)(std::int64_t depth, std::int64_t columns);
  /// Packs B (depth x columns) in the order in which products read it. If `rows` is not null, row k
  /// of B is row rows[k] of b.
  void (*pack)(std::int64_t depth, std::int64_t columns, const T* b, std::int64_t stride,
               const int* rows, T* packed);
  /// C (rows x columns) = A B, C += A B or C -= A B.
  void (*multiply_packed)(std::int64_t rows, std::int64_t columns, std::int64_t depth, const T* a,
                          std::int64_t a_stride, const T* packed, T* c, std::int64_t c_stride,
                          Into into);

  // thin_product.h: y += x A^T and y += x A for m x n numbers of A. A row of x or y is a vector.
  void (*thin_right)(std::int64_t m, std::int64_t n, const T* a, std::int64_t a_stride,
                     std::int64_t count, const T* x, std::int64_t x_stride, T* y,
                     std::int64_t y_stride);
  void (*thin_left)(std::int64_t m, std::int64_t n, const T* a, std::int64_t a_stride,
                    std::int64_t count, const T* x, std::int64_t x_stride, T* y,
                    std::int64_t y_stride);

  // eigh_large_steps.h: the reduction to tridiagonal form.
  /// The largest magnitude of the first `count` entries, or NaN if one is not finite.
  T (*largest)(std::int64_t count, const T* x);
  /// to[j] = from[j] 2^exponent.
  void (*scale)(std::int64_t count, int exponent, const T* from, T* to);
  /// y = the contribution of rows first .. end of the lower triangle, and of its mirror image, to
  /// the symmetric product. y has `end` entries. `first` is a multiple of kReach. x is zero beyond
  /// the end of the matrix.
  void (*symmetric_times)(std::int64_t first, std::int64_t end, const T* matrix,
                          std::int64_t stride, const T* x, T* y);
  /// The same for a Hermitian matrix, whose imaginary parts are `plane` after the real ones. Row i
  /// holds, up to the end of its diagonal block, what column i of the matrix holds. The imaginary
  /// parts of x and y are `stride` after their real ones.
  void (*hermitian_times)(std::int64_t first, std::int64_t end, const T* matrix, std::int64_t plane,
                          std::int64_t stride, const T* x, T* y);
  /// sums[r] = sum over first <= j < end of rows[r][j] x[j]. `first` and `end` are multiples of
  /// kReach.
  void (*dots)(std::int64_t count, const T* rows, std::int64_t stride, std::int64_t first,
               std::int64_t end, const T* x, T* sums);
  /// y -= sum_r factors[r] rows[r], on the first `end` entries.
  void (*subtract_rows)(std::int64_t count, const T* rows, std::int64_t stride, const T* factors,
                        std::int64_t end, T* y);
  /// Computes the reflector I - tau v v^T that annihilates all of the first k entries but entry k -
  /// 1. v[k - 1] = 1, and v is zero after it up to kReach. Returns tau, and the remaining entry in
  /// `left`.
  T (*reflector)(std::int64_t k, const T* row, T* v, T& left);
  /// The same for complex numbers, with imaginary parts `plane` after the row's and `stride` after
  /// v's real parts. What remains is left (phase[0] + i phase[1]), with a phase of size 1.
  T(*complex_reflector)
  (std::int64_t k, const T* row, std::int64_t plane, std::int64_t stride, T* v, T& left, T* phase);
  /// to += from.
  void (*add)(std::int64_t count, const T* from, T* to);
  /// w = tau (w - tau / 2 (w . v) v) on the first k entries. v and w are given in `parts` parts (one,
  /// or real and imaginary), `stride` apart. The product is that of all.
  void (*finish_product)(std::int64_t k, T tau, std::int64_t parts, std::int64_t stride, const T* v,
                         T* w);

  // svd_values_steps.h: singular values without vectors.
  /// For `count` lines of A^T: y = tau (y + A^T u), z -= y, and w = A z, of `end` entries, a multiple of
  /// kReach. A is read once.
  void (*both_products)(std::int64_t count, std::int64_t end, const T* lines, std::int64_t stride,
                        const T* u, T tau, T* y, T* z, T* w);
  /// Replaces guesses of `count` <= kBisected singular values of the bidiagonal matrix whose entries have
  /// these squares by numbers within `tolerance` of them. Value `place` is the one with as many above it;
  /// `most` is above all. `place` and `values` have kBisected entries.
  void (*bisect)(std::int64_t n, const T* d_square, const T* e_square, std::int64_t count,
                 const int* place, T most, T tolerance, T* values);

  // eigh_large_merge.h: merges of divide and conquer.
  void (*secular_value)(int count, int split, const T* pole, const T* z, T origin, T offset,
                        T* value);
  void (*secular_weights)(int first, int end, int count, const T* pole, const T* z,
                          const int* origin, const T* offset, T* refined);
  /// row[k] = refined[k] / ((pole[k] - origin) - offset), normalised.
  void (*update_row)(int count, const T* pole, const T* refined, T origin, T offset, T* row);
  /// right[k] = refined[k] / ((pole[k] - origin) - offset) and left[k] = size[k] right[k]. Normalises both, `left`
  /// together with one more entry, which it returns and which would be -1.
  T(*update_both)
  (int count, const T* pole, const T* size, const T* refined, T origin, T offset, T* left,
   T* right);
  /// x, y <- c x + s y, c y - s x.
  void (*turn)(std::int64_t count, T c, T s, T* x, T* y);

  /// The eigenvalues of a tridiagonal matrix at unit size, unsorted, in place of its diagonal
  /// (tridiagonal_values.h). The off-diagonal entries are used up. Returns false if it gave up.
  bool (*tridiagonal_values)(std::int64_t n, T* diagonal, T* off_diagonal, int max_sweeps);

  // svd_tall_steps.h: slices of a tall matrix.
  void (*tall_sizes)(std::int64_t rows, std::int64_t n, const T* x, std::int64_t stride, T& largest,
                     std::int64_t& zero_rows, std::int64_t& large_rows);
  void (*tall_reduce)(std::int64_t rows, std::int64_t n, T* x, std::int64_t stride, T* tau, T* r);
  void (*tall_expand)(std::int64_t rows, std::int64_t n, const T* v, std::int64_t stride,
                      const T* tau, const T* w, T* y, T* scratch);

  /// -1 if the entry of largest magnitude (the first one, if several tie) is negative, else 1.
  T (*sign)(std::int64_t count, const T* x);
  /// Column j of `to` (n x count) is sign[j] times row j of `from`.
  void (*store_columns)(std::int64_t n, std::int64_t count, const T* from, std::int64_t from_stride,
                        const T* sign, T* to, std::int64_t to_stride);
  /// The same for complex numbers, with the conjugates of the rows, whose imaginary parts are
  /// `plane` after their real ones. The entry of largest magnitude of each column (the first one, if
  /// several tie) becomes real and positive. `to` has real and imaginary parts in turn.
  void (*store_complex_columns)(std::int64_t n, std::int64_t count, T* from, std::int64_t plane,
                                std::int64_t from_stride, T* to, std::int64_t to_stride);
};

template <typename T>
const LargeKernels<T>& large_kernels();

}  // namespace keel::cpu
