#include "keel/eigh.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <type_traits>
#include <vector>

#include "eigh_large.h"
#include "eigh_limits.h"
#include "eigh_parts.h"
#include "in_chunks.h"
#include "instantiate.h"
#include "keel/error.h"
#include "kernels.h"
#include "not_a_number.h"
#include "scratch.h"
#include "scratch_gap.h"
#include "shape.h"

namespace keel::cpu {

/// A pack of lanes costs as much as several single matrices, and more so for large n. A batch is
/// solved one matrix at a time if it would leave too many lanes or threads idle, or if a pack does
/// not fit into the cache.
template <typename T>
bool solves_in_lanes(std::int64_t n, std::int64_t batch) {
  const std::int64_t lanes = kernels<RealOf<T>>().lanes;
  if constexpr (kIsComplex<T>) {
    // A pack's memory, 256 n^2 bytes, must stay in the second cache beside the matrices.
    const std::int64_t fewest = n <= 8 ? 1 : n <= 32 ? lanes / 2 : lanes;
    return n > 1 && n <= (sizeof(T) == 8 ? 64 : 48) && batch >= fewest;
  }
  const std::int64_t fewest = n <= 8    ? lanes / 4
                              : n <= 32 ? lanes / 2
                              : n <= 64 ? 8 * lanes
                                        : 16 * lanes;
  return n > 2 && n <= 128 && batch >= fewest;
}

namespace {

/// From kLargeSize on, matrix products are faster than rotations; where only values are wanted, from
/// kLargeValues on. From kThreadedSize on, one matrix is worth several threads.
constexpr std::int64_t kLargeSize = 96, kLargeValues = 24, kThreadedSize = 192;

/// Solves one matrix at a time by Householder reduction and QL rotations.
template <typename T>
class OneSolver {
 public:
  OneSolver(std::int64_t n, int max_sweeps)
      : n_(n),
        stride_(padded<T>(n)),
        blocks_((n + kBlockRows<T> - 1) / kBlockRows<T>),
        max_sweeps_(max_sweeps),
        memory_(with_gap<T>(blocks_ * n * kBlockRows<T>) + 4 * with_gap<T>(n * stride_) +
                with_gap<T>(8 * stride_) + 3 * with_gap<T>(stride_)),
        sweeps_(2 * n + 1) {
    T* next = memory_;
    vectors_ = take(next, blocks_ * n * kBlockRows<T>);
    matrix_ = take(next, n * stride_);
    reflectors_ = take(next, n * stride_);
    rows_ = take(next, 8 * stride_);
    diagonal_ = take(next, stride_);
    off_diagonal_ = take(next, stride_);
    tau_ = take(next, stride_);
    cosine_ = take(next, n * stride_);
    sine_ = take(next, n * stride_);
  }

  EighStatus solve(const T* matrix, std::int64_t row_stride, EighOrder order, T* values, T* vectors,
                   std::int64_t vector_stride) {
    const Kernels<T>& kernel = kernels<T>();
    int exponent = 0;
    if (!kernel.load(n_, matrix, row_stride, matrix_, exponent)) {
      constexpr T nan = std::numeric_limits<T>::quiet_NaN();
      std::fill_n(values, n_, nan);
      for (std::int64_t i = 0; vectors != nullptr && i < n_; ++i)
        std::fill_n(vectors + i * vector_stride, n_, nan);
      return EighStatus::not_finite;
    }
    kernel.tridiagonalise(n_, matrix_, diagonal_, off_diagonal_, reflectors_, tau_, rows_);
    const std::int64_t blocks = vectors == nullptr ? 0 : blocks_;
    // The padding rows of the last block are rotated too. Clear them: stale denormals there would
    // be slower than everything else.
    T* const last_block = vectors_ + (blocks_ - 1) * n_ * kBlockRows<T>;
    if (blocks > 0 && n_ % kBlockRows<T> != 0) std::fill_n(last_block, n_ * kBlockRows<T>, T(0));
    if (blocks > 0) kernel.form_vectors(n_, reflectors_, tau_, vectors_, rows_);
    QlProgress<T> progress{.n = n_,
                           .diagonal = diagonal_,
                           .off_diagonal = off_diagonal_,
                           .max_sweeps = max_sweeps_,
                           .blocks = vectors_,
                           .block_count = blocks,
                           .cosine = cosine_,
                           .sine = sine_,
                           .sweeps = sweeps_,
                           .rotation_capacity = n_ * stride_,
                           .sweep_capacity = 2 * n_ + 1};
    while (!progress.finished) kernel.iterate(progress);
    if (progress.unconverged) return EighStatus::by_fallback;
    kernel.store(n_, exponent, diagonal_, vectors_, order, values, vectors, vector_stride, rows_);
    return EighStatus::converged;
  }

 private:
  std::int64_t n_, stride_, blocks_;
  int max_sweeps_;
  Scratch<T> memory_;
  Scratch<typename QlProgress<T>::Sweep> sweeps_;
  T *vectors_, *matrix_, *reflectors_, *rows_, *diagonal_, *off_diagonal_, *tau_, *cosine_, *sine_;
};

/// One 2 x 2 matrix, by one rotation. The value of largest magnitude is then exact where the diagonal is
/// zero, which matters at the end of the type's range. `vectors` may be null.
template <typename T>
EighStatus solve_pair(const T* matrix, std::int64_t row_stride, EighOrder order, T* values,
                      T* vectors, std::int64_t vector_stride) {
  T a = matrix[0], b = matrix[row_stride], c = matrix[row_stride + 1];
  const T largest = std::max({std::abs(a), std::abs(b), std::abs(c)});
  T value[2], vector[2][2];
  const T not_finite = a * 0 + b * 0 + c * 0;  // NaN if one of them is not finite
  int exponent = 0;
  if (not_finite != 0) {
    value[0] = value[1] = vector[0][0] = vector[0][1] = vector[1][0] = vector[1][1] = not_finite;
  } else {
    std::frexp(largest, &exponent);
    // In two steps, because 2^-exponent may overflow.
    const T once = std::ldexp(T(1), -exponent / 2),
            again = std::ldexp(T(1), -exponent - -exponent / 2);
    a = a * once * again;
    b = b * once * again;
    c = c * once * again;
    const T zeta = b == 0 ? T(0) : (c - a) / (2 * b), reach = std::abs(zeta);
    // Where the rotation is far below rounding, the square would overflow.
    const T one = reach > T(1e14) ? 1 / (2 * reach) : 1 / (reach + std::sqrt(1 + zeta * zeta));
    const T t = b == 0 ? T(0) : zeta < 0 ? -one : one;
    const T cosine = 1 / std::sqrt(1 + t * t), sine = t * cosine;
    value[0] = a - t * b;
    value[1] = c + t * b;
    vector[0][0] = vector[1][1] = cosine;
    vector[0][1] = -sine;
    vector[1][0] = sine;
    if (sine == -cosine) vector[1][0] = cosine, vector[1][1] = sine;
  }
  const bool swapped = value[1] > value[0];
  for (int place = 0; place < 2; ++place) {
    const int from = int(swapped) ^ (order == EighOrder::descending ? place : 1 - place);
    values[place] = std::ldexp(value[from], exponent) + T(0);
    for (int i = 0; vectors != nullptr && i < 2; ++i)
      vectors[i * vector_stride + place] = vector[from][i] + T(0);
  }
  return not_finite != 0 ? EighStatus::not_finite : EighStatus::converged;
}

/// One eigenproblem and the destination of its result. `vectors` is null for the values alone.
template <typename T>
struct Problem {
  std::int64_t n;
  const T* matrix;
  std::int64_t row_stride;
  EighOrder order;
  RealOf<T>* values;
  T* vectors;
  std::int64_t vector_stride;
  int max_sweeps;

  EighStatus solve_whole(const Executor& executor) const {
    if constexpr (kIsComplex<T>) {
      return eigh_large(n, matrix, row_stride, order, values, vectors, vector_stride, max_sweeps,
                        n >= kThreadedSize ? executor : serial());
    } else {
      return solve_real(executor);
    }
  }
  EighStatus solve_real(const Executor& executor) const {
    if (n == 2) return solve_pair(matrix, row_stride, order, values, vectors, vector_stride);
    if (n >= (vectors == nullptr ? kLargeValues : kLargeSize))
      return eigh_large(n, matrix, row_stride, order, values, vectors, vector_stride, max_sweeps,
                        n >= kThreadedSize ? executor : serial());
    return OneSolver<T>(n, max_sweeps)
        .solve(matrix, row_stride, order, values, vectors, vector_stride);
  }

  /// Returns whether the matrix is finite and block diagonal (eigh_parts.h). If so, solves it part
  /// by part.
  bool solved_by_parts(Parts<T>& parts, EighStatus& status, const Executor& executor) const {
    if (!Parts<T>::may_exist(matrix, n, row_stride) || parts.find(matrix, n, row_stride) == 1)
      return false;
    const EighStatus found =
        parts.solve(order, values, vectors, vector_stride,
                    [&](std::int64_t m, const T* part, RealOf<T>* part_values, T* part_vectors) {
                      return Problem{m,           part,         m, EighOrder::descending,
                                     part_values, part_vectors, m, max_sweeps}
                          .solve_whole(executor);
                    });
    if (found == EighStatus::not_finite) return false;
    status = found;
    return true;
  }

  EighStatus solve(const Executor& executor) const {
    EighStatus status{};
    Parts<T> parts;
    return solved_by_parts(parts, status, executor) ? status : solve_whole(executor);
  }
};

/// Solves with the slow reference, which always converges, a matrix on which the fast solver gave
/// up.
template <typename T>
void fall_back(const T* matrix, std::int64_t n, std::int64_t row_stride, EighOrder order,
               RealOf<T>* values, T* vectors, std::int64_t vector_stride) {
  using Exact = std::conditional_t<kIsComplex<T>, std::complex<double>, double>;
  std::vector<Exact> a(n * n), v(n * n);
  std::vector<double> l(n);
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j <= i; ++j) a[i * n + j] = matrix[i * row_stride + j];
  reference::eigh(contiguous<const Exact>(a.data(), 1, n), l.data(), contiguous(v.data(), 1, n),
                  order);
  for (std::int64_t i = 0; i < n; ++i) {
    values[i] = RealOf<T>(l[i]);
    for (std::int64_t j = 0; vectors != nullptr && j < n; ++j)
      vectors[i * vector_stride + j] = T(v[i * n + j]);
  }
}

/// Matrices of one number, which is the value.
template <typename T>
void solve_numbers(Matrices<const T> matrices, RealOf<T>* values, Matrices<T> vectors,
                   EighStatus* status) {
  for (std::int64_t index = 0; index < matrices.batch; ++index) {
    const RealOf<T> value = std::real(*matrices[index]);
    const RealOf<T> zero = value * 0 + 0;  // NaN if the number is not finite
    values[index] = value + zero;
    if (vectors) *vectors[index] = zero == 0 ? T(1) : not_a_number<T>();
    if (status != nullptr)
      status[index] = zero == 0 ? EighStatus::converged : EighStatus::not_finite;
  }
}

template <typename T>
const LaneKernels<T>& lane_kernels() {
  if constexpr (kIsComplex<T>)
    return kernels<RealOf<T>>().complex_lanes;
  else
    return kernels<T>().real_lanes;
}

/// Without `vectors`, the values alone.
template <typename T>
void solve_all(Matrices<const T> matrices, RealOf<T>* values, Matrices<T> vectors, EighOrder order,
               EighStatus* status, const Executor& executor, EighLimits limits) {
  const std::int64_t n = matrices.n, batch = matrices.batch;
  if (batch == 0) return;
  if (n == 0) {
    if (status != nullptr) std::fill_n(status, batch, EighStatus::converged);
    return;
  }
  if (n == 1) return solve_numbers(matrices, values, vectors, status);
  std::vector<EighStatus> own_status;
  if (status == nullptr) {
    own_status.resize(batch);
    status = own_status.data();
  }
  const auto problem = [&](std::int64_t index) {
    return Problem<T>{n,
                      matrices[index],
                      matrices.row_stride,
                      order,
                      values + index * n,
                      vectors ? vectors[index] : nullptr,
                      vectors.row_stride,
                      limits.max_sweeps};
  };
  if (solves_in_lanes<T>(n, batch)) {
    const Kernels<RealOf<T>>& kernel = kernels<RealOf<T>>();
    const LaneKernels<T>& lanes = lane_kernels<T>();
    // A pack takes about n^2 / 8 microseconds. Batches below about 30 us stay on this thread, and a
    // piece takes about 8 us.
    const std::int64_t packs = (batch + kernel.lanes - 1) / kernel.lanes;
    const std::int64_t per_piece =
        packs * n * n < 256 ? packs : std::max<std::int64_t>(1, 64 / (n * n + 1));
    executor((packs + per_piece - 1) / per_piece, [&](std::int64_t piece) {
      Scratch<RealOf<T>> scratch(lanes.scratch(n));
      const std::int64_t begin = piece * per_piece * kernel.lanes;
      const std::int64_t end = std::min(batch, begin + per_piece * kernel.lanes);
      Parts<T> parts;
      for (std::int64_t first = begin; first < end; first += kernel.lanes) {
        const std::int64_t last = std::min(end, first + kernel.lanes);
        // A pack in which each matrix has parts needs no lanes.
        std::int64_t solved = first;
        while (solved < last && problem(solved).solved_by_parts(parts, status[solved], serial()))
          ++solved;
        if (solved == last) continue;
        lanes.solve(first, last - first, matrices, values, vectors, order, status,
                    limits.max_sweeps, scratch);
        for (std::int64_t index = first; index < last; ++index)
          problem(index).solved_by_parts(parts, status[index], serial());
      }
    });
  } else if (batch < 8 && n >= 2 * kThreadedSize) {
    for (std::int64_t index = 0; index < batch; ++index)
      status[index] = problem(index).solve(executor);
  } else if (batch == 1) {
    status[0] = problem(0).solve(executor);
  } else {
    in_chunks(batch, n, executor, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t index = first; index < last; ++index)
        status[index] = problem(index).solve(serial());
    });
  }
  if (std::find(status, status + batch, EighStatus::by_fallback) == status + batch) return;
  executor(batch, [&](std::int64_t index) {
    if (status[index] == EighStatus::by_fallback)
      fall_back(matrices[index], n, matrices.row_stride, order, values + index * n,
                vectors ? vectors[index] : nullptr, vectors.row_stride);
  });
}

}  // namespace

template <typename T>
void eigh(Matrices<const T> matrices, RealOf<T>* values, Matrices<T> vectors, EighOrder order,
          EighStatus* status, const Executor& executor, EighLimits limits) {
  check_eigh("keel::eigh", matrices, values, vectors);
  solve_all(matrices, values, vectors, order, status, executor, limits);
}

template <typename T>
void eigvalsh(Matrices<const T> matrices, RealOf<T>* values, EighOrder order, EighStatus* status,
              const Executor& executor) {
  require_given("keel::eigvalsh", "matrices", matrices);
  require_numbers("keel::eigvalsh", "values", values, matrices.batch * matrices.n);
  solve_all(matrices, values, Matrices<T>{}, order, status, executor, EighLimits{});
}

template <typename T>
void eigh(Matrices<const T> matrices, RealOf<T>* values, Matrices<T> vectors, EighOrder order,
          EighStatus* status, const Executor& executor) {
  eigh(matrices, values, vectors, order, status, executor, EighLimits{});
}

#define KEEL_INSTANTIATE(T)                                                              \
  template bool solves_in_lanes<T>(std::int64_t, std::int64_t);                          \
  template void eigh(Matrices<const T>, RealOf<T>*, Matrices<T>, EighOrder, EighStatus*, \
                     const Executor&);                                                   \
  template void eigh(Matrices<const T>, RealOf<T>*, Matrices<T>, EighOrder, EighStatus*, \
                     const Executor&, EighLimits);                                       \
  template void eigvalsh(Matrices<const T>, RealOf<T>*, EighOrder, EighStatus*, const Executor&);
KEEL_FOR_REAL(KEEL_INSTANTIATE)
KEEL_FOR_COMPLEX(KEEL_INSTANTIATE)
#undef KEEL_INSTANTIATE

}  // namespace keel::cpu
