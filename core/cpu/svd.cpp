#include "keel/svd.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "eigh_limits.h"
#include "formulas/polish_reach.h"
#include "instantiate.h"
#include "kernels.h"
#include "scratch.h"
#include "shape.h"
#include "svd_bidiagonal.h"
#include "svd_finish.h"
#include "svd_large.h"
#include "svd_tall.h"

namespace keel::cpu {
namespace {

constexpr int kMaxSweeps = 30;                   // five or six suffice in practice
constexpr std::int64_t kMostEntries = 64L * 64;  // larger packs do not fit into the cache

/// Matrices are solved one at a time if a pack would fill too few lanes or not fit into the cache.
template <typename T>
bool use_lanes(std::int64_t m, std::int64_t n, std::int64_t batch) {
  const std::int64_t lanes = kernels<T>().lanes;
  return m * n <= kMostEntries && batch >= (n <= 8 ? lanes / 4 : lanes / 2);
}

/// Below this size Jacobi's method is as fast as the detour over an eigenproblem.
constexpr std::int64_t kFewestPolished = 12;
/// From this size on divide and conquer solves what the eigenvectors of A^T A do not, and is tried first unless one side
/// is so much longer that A^T A is far smaller than A.
constexpr std::int64_t kFewestDivided = 64;
bool polish_pays(std::int64_t k, std::int64_t longer) {
  return k >= kFewestPolished && (k < kFewestDivided || longer >= 2 * k);
}

/// Returns whether the matrix is finite and diagonal. If so, sorts the values.
template <typename T>
bool solved_as_diagonal(Rectangles<const T> matrices, std::int64_t b, T* values, Rectangles<T> left,
                        Rectangles<T> right) {
  const Lines<T> lines(matrices, b);
  if (!lines.is_diagonal()) return false;
  const std::int64_t k = lines.count;
  std::vector<std::int64_t> order(static_cast<std::size_t>(k));
  std::iota(order.begin(), order.end(), 0);
  for (const std::int64_t j : order)
    if (!std::isfinite(lines.diagonal(j))) return false;
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t i, std::int64_t j) {
    return std::abs(lines.diagonal(i)) > std::abs(lines.diagonal(j));
  });
  for (std::int64_t i = 0; i < matrices.rows; ++i)
    std::fill_n(left[b] + i * left.row_stride, k, T(0));
  for (std::int64_t j = 0; j < k; ++j) {
    const std::int64_t own = order[std::size_t(j)];
    const T value = lines.diagonal(own);
    T* const row = right[b] + j * right.row_stride;
    values[b * k + j] = std::abs(value);
    std::fill_n(row, matrices.columns, T(0));
    row[own] = value < 0 ? T(-1) : T(1);
    left[b][own * left.row_stride + j] = 1;
  }
  return true;
}

template <typename T>
bool solve_small(const Executor& executor, std::int64_t n, const T* matrix, T* vectors,
                 std::int64_t stride) {
  Scratch<T> values(n);
  EighStatus status = EighStatus::by_fallback;
  eigh<T>({matrix, 1, n, stride, n * stride}, values, {vectors, 1, n, stride, n * stride},
          EighOrder::descending, &status, executor);
  return status == EighStatus::converged;
}

void share(const Executor& executor, std::int64_t pieces, void (*body)(const void*, std::int64_t),
           const void* data) {
  executor(pieces, [&](std::int64_t piece) { body(data, piece); });
}

/// Solves those matrices of a batch that are not steep, via the eigenvectors of A^T A.
template <typename T>
class Polish {
 public:
  Polish(Rectangles<const T> matrices, T* values, Rectangles<T> left, Rectangles<T> right,
         SvdStatus* status)
      : matrices_(matrices),
        values_(values),
        left_(left),
        right_(right),
        status_(status),
        n_(std::min(matrices.rows, matrices.columns)),
        lanes_(solves_in_lanes<T>(n_, matrices.batch)) {}

  /// Removes the solved matrices from `which` and updates `count`.
  void solve(std::int64_t* which, std::int64_t& count, const Executor& executor) const {
    const Helpers<T> helpers{&executor, solve_small<T>, share};
    const Kernels<T>& kernel = kernels<T>();
    const std::int64_t size = n_ * n_;
    Scratch<T> scratch(std::max(kernel.svd_polish_scratch(matrices_.rows, matrices_.columns),
                                lanes_ ? kernel.real_lanes.scratch(n_) : 0)),
        squares(count * size), vectors(count * size), values(count * n_);
    std::vector<int> exponents(std::size_t(count), 0);
    std::vector<EighStatus> solved(std::size_t(count), EighStatus::by_fallback);
    std::vector<std::int64_t> able;
    std::int64_t left = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const auto next = std::int64_t(able.size());
      if (kernel.svd_square(which[i], matrices_, exponents[std::size_t(next)],
                            squares + next * size, helpers, scratch))
        able.push_back(which[i]);
      else
        which[left++] = which[i];
    }
    const auto ready = std::int64_t(able.size());
    const Matrices<const T> problems{squares, ready, n_, n_, size};
    const Matrices<T> answers{vectors, ready, n_, n_, size};
    if (lanes_) {
      for (std::int64_t first = 0; first < ready; first += kernel.lanes)
        kernel.real_lanes.solve(first, std::min<std::int64_t>(kernel.lanes, ready - first),
                                problems, values, answers, EighOrder::descending, solved.data(),
                                EighLimits{}.max_sweeps, scratch);
    } else {
      for (std::int64_t i = 0; i < ready; ++i)
        eigh<T>({squares + i * size, 1, n_, n_, size}, values + i * n_,
                {vectors + i * size, 1, n_, n_, size}, EighOrder::descending,
                &solved[std::size_t(i)], executor);
    }
    for (std::int64_t i = 0; i < ready; ++i) {
      const std::int64_t index = able[std::size_t(i)];
      if (solved[std::size_t(i)] == EighStatus::converged && tells_apart(values + i * n_) &&
          kernel.svd_polish(index, matrices_, exponents[std::size_t(i)], vectors + i * size,
                            helpers, values_, left_, right_, scratch))
        finish(index);
      else
        which[left++] = index;
    }
    count = left;
  }

 private:
  /// Whether A^T A determines all directions, where there is another way that needs not.
  bool tells_apart(const T* values) const {
    return (n_ < kFewestDivided && !is_tall(matrices_.rows, matrices_.columns)) ||
           values[n_ - 1] >= PolishReach<T>::tail(T(n_)) * values[0];
  }

  void finish(std::int64_t index) const {
    status_[index] = SvdStatus::converged;
    finish_svd(matrices_.rows, matrices_.columns, values_ + index * n_, left_[index],
               left_.row_stride, right_[index], right_.row_stride);
  }

  Rectangles<const T> matrices_;
  T* values_;
  Rectangles<T> left_, right_;
  SvdStatus* status_;
  std::int64_t n_;
  bool lanes_;
};

/// Solves in the next wider type: float with this solver in double, double with the slow reference,
/// which always converges.
template <typename T>
void fall_back(Rectangles<const T> matrices, std::int64_t index, T* values, Rectangles<T> left,
               Rectangles<T> right) {
  const std::int64_t m = matrices.rows, n = matrices.columns, k = std::min(m, n);
  std::vector<double> a(std::size_t(m * n)), s(std::size_t(k), 0), u(std::size_t(m * k)),
      v(std::size_t(k * n));
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j)
      a[std::size_t(i * n + j)] = double(matrices[index][i * matrices.row_stride + j]);
  const auto matrix = contiguous<const double>(a.data(), 1, m, n);
  const auto u_of_it = contiguous(u.data(), 1, m, k), v_of_it = contiguous(v.data(), 1, k, n);
  if constexpr (sizeof(T) < sizeof(double))
    svd<double>(matrix, s.data(), u_of_it, v_of_it, nullptr, serial());
  else
    reference::svd(matrix, s.data(), u_of_it, v_of_it);
  const auto copy = [&](const std::vector<double>& from, Rectangles<T> to) {
    for (std::int64_t i = 0; i < to.rows; ++i)
      for (std::int64_t j = 0; j < to.columns; ++j)
        to[index][i * to.row_stride + j] = T(from[std::size_t(i * to.columns + j)]);
  };
  std::transform(s.begin(), s.end(), values + index * k, [](double x) { return T(x); });
  copy(u, left);
  copy(v, right);
  for (std::int64_t j = 0; j < k; ++j)  // rounding may have made the largest entries equal
    fix_sign(m, n, j, left[index], left.row_stride, right[index], right.row_stride);
}

}  // namespace

template <typename T>
void svd(Rectangles<const T> matrices, T* values, Rectangles<T> left, Rectangles<T> right,
         SvdStatus* status, const Executor& executor) {
  check_svd("keel::svd", matrices, values, left, right);
  const std::int64_t m = matrices.rows, n = matrices.columns, k = std::min(m, n),
                     batch = matrices.batch;
  std::vector<SvdStatus> own_status;
  if (status == nullptr) {
    own_status.resize(std::size_t(batch));
    status = own_status.data();
  }
  if (k == 0) {
    std::fill_n(status, batch, SvdStatus::converged);
    return;
  }
  const Kernels<T>& kernel = kernels<T>();
  const bool divided = k >= kFewestDivided, polished = polish_pays(k, std::max(m, n)),
             lanes = !divided && use_lanes<T>(m, n, batch);
  const Polish<T> polish(matrices, values, left, right, status);
  const std::int64_t pack = lanes || (polished && solves_in_lanes<T>(k, batch)) ? kernel.lanes : 1,
                     packs = (batch + pack - 1) / pack;
  const std::int64_t per_piece = std::max<std::int64_t>(1, 256 / (m * n + 1));
  const bool tall = is_tall(m, n);
  const auto by_slices = [&](std::int64_t* which, std::int64_t& count, const Executor& own) {
    const auto one = [](const auto& all, std::int64_t b) {
      auto its = all;
      its.data = all[b];
      return its;
    };
    count = std::remove_if(which, which + count,
                           [&](std::int64_t b) {
                             if (!svd_tall<T>(one(matrices, b), values + b * k, one(left, b),
                                              one(right, b), own))
                               return false;
                             status[b] = SvdStatus::converged;
                             return true;
                           }) -
            which;
  };
  const Executor alone = serial(), &own = batch == 1 ? executor : alone;
  const auto finish = [&](std::int64_t b) {
    if (status[b] == SvdStatus::not_finite)
      svd_is_nan(b, k, values, left, right);
    else if (status[b] == SvdStatus::by_fallback)
      fall_back(matrices, b, values, left, right);
    else
      finish_svd(m, n, values + b * k, left[b], left.row_stride, right[b], right.row_stride);
  };
  executor((packs + per_piece - 1) / per_piece, [&](std::int64_t piece) {
    const auto by_jacobi = lanes ? kernel.svd_lanes : kernel.svd_alone;
    const auto scratch_of = lanes ? kernel.svd_lanes_scratch : kernel.svd_alone_scratch;
    Scratch<T> scratch(divided ? 0 : scratch_of(m, n));
    std::vector<std::int64_t> which(std::size_t(pack), 0);
    for (std::int64_t at = piece * per_piece; at < std::min(packs, (piece + 1) * per_piece); ++at) {
      const std::int64_t first = at * pack;
      std::int64_t count = 0;
      for (std::int64_t b = first; b < std::min(first + pack, batch); ++b)
        if (solved_as_diagonal(matrices, b, values, left, right))
          status[b] = SvdStatus::converged;
        else
          which[std::size_t(count++)] = b;
      // Slices first where they are as fast as the detour, which depends on the values.
      if (tall && k <= kFewestPolished + 4) by_slices(which.data(), count, own);
      if (polished) polish.solve(which.data(), count, own);
      if (tall && k > kFewestPolished + 4) by_slices(which.data(), count, own);
      if (divided) {
        for (std::int64_t i = 0; i < count; ++i) {
          const std::int64_t b = which[std::size_t(i)];
          const bool finite = svd_large(matrices, b, values + b * k, left, right, own);
          status[b] = finite ? SvdStatus::converged : SvdStatus::not_finite;
          if (!finite) finish(b);
        }
        continue;
      }
      const std::int64_t step = lanes ? pack : 1;
      for (std::int64_t i = 0; i < count; i += step)
        by_jacobi(which.data() + i, std::min(step, count - i), matrices, values, left, right,
                  status, kMaxSweeps, {&own, solve_small<T>, share}, scratch);
      for (std::int64_t i = 0; i < count; ++i) finish(which[std::size_t(i)]);
    }
  });
}

#define KEEL_STAGES(T) KEEL_STAGE(svd, T)
KEEL_FOR_REAL(KEEL_STAGES)
#undef KEEL_STAGES

}  // namespace keel::cpu
