#pragma once

// One symmetric eigenproblem over all lanes. The method is that of eigh_lanes.h.

#include "eigh_scaling.h"
#include "kernels.h"
#include "simd.h"

namespace keel::cpu::KEEL_ISA {

/// Fills both triangles of `scaled` (padded rows, zero padding) from the lower triangle of
/// `matrix`, scaled to unit size. Returns false if the matrix is not finite.
template <typename T>
bool load(std::int64_t n, const T* matrix, std::int64_t row_stride, T* scaled, int& exponent) {
  if (!scale_exponent(n, matrix, row_stride, exponent)) return false;
  const std::int64_t stride = padded<T>(n);
  const PowerOfTwo<T> scale(-exponent);
  constexpr std::int64_t kTile = 16;  // transposing by tiles keeps both sides in cache
  for (std::int64_t top = 0; top < n; top += kTile)
    for (std::int64_t left = 0; left <= top; left += kTile)
      for (std::int64_t i = top; i < n && i < top + kTile; ++i)
        for (std::int64_t j = left; j <= i && j < left + kTile; ++j)
          scaled[i * stride + j] = scaled[j * stride + i] = scale * matrix[i * row_stride + j];
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = n; j < stride; ++j) scaled[i * stride + j] = 0;
  return true;
}

template <typename T>
inline T dot(std::int64_t begin, std::int64_t end, const T* x, const T* y) {
  Vec<T> sum[2] = {};
  std::int64_t j = begin;
  for (; j + 2 * kLanes<T> <= end; j += 2 * kLanes<T>)
    for (int v = 0; v < 2; ++v)
      sum[v] += *reinterpret_cast<const Vec<T>*>(x + j + v * kLanes<T>) *
                *reinterpret_cast<const Vec<T>*>(y + j + v * kLanes<T>);
  for (; j < end; j += kLanes<T>)
    sum[0] += *reinterpret_cast<const Vec<T>*>(x + j) * *reinterpret_cast<const Vec<T>*>(y + j);
  return sum_lanes<T>(sum[0] + sum[1]);
}

/// Updates rows first .. first + ROWS of A <- A - v w^T - w v^T and multiplies them by u, in one
/// pass.
template <typename T, int ROWS>
inline void update_and_multiply(std::int64_t first, std::int64_t begin, std::int64_t stride,
                                T* matrix, const T* v, const T* w, const T* u, T* product) {
  Vec<T> sum[ROWS] = {};
  T* rows = matrix + first * stride;
  for (std::int64_t j = begin; j < stride; j += kLanes<T>) {
    const auto at = [j](auto* x) { return reinterpret_cast<const Vec<T>*>(x + j); };
    const Vec<T> vj = *at(v), wj = *at(w), uj = *at(u);
    for (int r = 0; r < ROWS; ++r) {
      auto& a = *reinterpret_cast<Vec<T>*>(rows + r * stride + j);
      a -= v[first + r] * wj + w[first + r] * vj;
      sum[r] += a * uj;
    }
  }
  for (int r = 0; r < ROWS; ++r) product[first + r] = sum_lanes<T>(sum[r]);
}

/// Reduces the full symmetric `matrix` (rows padded<T>(n) apart, zero padding), which is destroyed.
/// Row k of `reflectors` (n padded rows) receives reflector k, with zeros up to entry k and a 1 at
/// entry k + 1. `scratch`: four padded rows. The update of step k is applied during the product of
/// step k + 1, so the matrix is read and written once per step.
template <typename T>
void tridiagonalise(std::int64_t n, T* matrix, T* diagonal, T* off_diagonal, T* reflectors, T* tau,
                    T* scratch) {
  const std::int64_t stride = padded<T>(n);
  T *v = scratch, *w = v + stride, *product = w + stride;
  for (std::int64_t j = 0; j < 3 * stride; ++j) scratch[j] = 0;
  for (std::int64_t j = 0; j < n * stride; ++j) reflectors[j] = 0;
  for (std::int64_t k = 0; k < n; ++k) {
    T* row = matrix + k * stride;
    for (std::int64_t j = k; j < n; ++j) row[j] -= v[k] * w[j] + w[k] * v[j];
    diagonal[k] = row[k];
    off_diagonal[k] = tau[k] = 0;
    if (k + 1 == n) break;

    T* u = reflectors + k * stride;
    const T alpha = row[k + 1];
    T square = 0;
    for (std::int64_t j = k + 2; j < n; ++j) square += row[j] * row[j];
    u[k + 1] = 1;
    off_diagonal[k] = alpha;
    if (square > kTinySquare<T>) {
      T norm = square_root<T>(broadcast(alpha * alpha + square))[0];
      norm = alpha < 0 ? norm : -norm;
      const T scale = T(1) / (alpha - norm);
      for (std::int64_t j = k + 2; j < n; ++j) u[j] = row[j] * scale;
      off_diagonal[k] = norm;
      tau[k] = (norm - alpha) / norm;
    }

    const std::int64_t begin = (k + 1) / kLanes<T> * kLanes<T>;
    std::int64_t i = k + 1;
    for (; i + 4 <= n; i += 4)
      update_and_multiply<T, 4>(i, begin, stride, matrix, v, w, u, product);
    for (; i < n; ++i) update_and_multiply<T, 1>(i, begin, stride, matrix, v, w, u, product);
    const T half = T(0.5) * tau[k] * dot(begin, stride, product, u);
    v[k] = w[k] = product[k] = 0;
    for (std::int64_t j = k + 1; j < n; ++j) {
      v[j] = u[j];
      w[j] = tau[k] * (product[j] - half * u[j]);
    }
    for (std::int64_t j = begin; j < k + 1; ++j) v[j] = w[j] = 0;
  }
}

template <typename T, int COLUMNS>
inline void form_columns(std::int64_t n, const T* reflectors, const T* tau, std::int64_t first,
                         T* blocks, T* scratch) {
  const std::int64_t stride = padded<T>(n);
  for (std::int64_t j = 0; j < COLUMNS * stride; ++j) scratch[j] = 0;
  for (int c = 0; c < COLUMNS; ++c) scratch[c * stride + first + c] = 1;
  // Reflectors that begin after entry j do not change the unit vector e_j.
  std::int64_t last = first + COLUMNS - 2;
  if (last > n - 3) last = n - 3;
  for (std::int64_t k = last; k >= 0; --k) {
    const T* u = reflectors + k * stride;
    const std::int64_t begin = (k + 1) / kLanes<T> * kLanes<T>;
    Vec<T> sum[COLUMNS] = {};
    for (std::int64_t j = begin; j < stride; j += kLanes<T>) {
      const Vec<T> uj = *reinterpret_cast<const Vec<T>*>(u + j);
      for (int c = 0; c < COLUMNS; ++c)
        sum[c] += uj * *reinterpret_cast<const Vec<T>*>(scratch + c * stride + j);
    }
    T factor[COLUMNS];
    for (int c = 0; c < COLUMNS; ++c) factor[c] = tau[k] * sum_lanes<T>(sum[c]);
    for (std::int64_t j = begin; j < stride; j += kLanes<T>) {
      const Vec<T> uj = *reinterpret_cast<const Vec<T>*>(u + j);
      for (int c = 0; c < COLUMNS; ++c)
        *reinterpret_cast<Vec<T>*>(scratch + c * stride + j) -= factor[c] * uj;
    }
  }
  for (int c = 0; c < COLUMNS; ++c)
    for (std::int64_t row = 0; row < n; ++row)
      blocks[((row / kBlockRows<T>)*n + first + c) * kBlockRows<T> + row % kBlockRows<T>] =
          scratch[c * stride + row];
}

/// Accumulates H_0 H_1 ... into the blocked layout. `scratch`: 8 padded rows.
template <typename T>
void form_vectors(std::int64_t n, const T* reflectors, const T* tau, T* blocks, T* scratch) {
  std::int64_t j = 0;
  for (; j + 8 <= n; j += 8) form_columns<T, 8>(n, reflectors, tau, j, blocks, scratch);
  for (; j < n; ++j) form_columns<T, 1>(n, reflectors, tau, j, blocks, scratch);
}

/// Applies recorded sweeps to blocks of vectors, a few rotations at a time. Finding a rotation is a
/// chain of dependent square roots and divisions that leaves the vector units idle. They rotate the
/// blocks meanwhile, one group of sweeps behind the search.
template <typename T>
class Rotator {
  static constexpr int kVectors = int(kBlockRows<T>) / kLanes<T>;
  static constexpr std::int64_t kGroup = 4;  // sweeps applied to a block while it is in cache

 public:
  explicit Rotator(const QlProgress<T>& progress) : progress_(progress) {}

  /// Applies at most `steps` rotations, each to one block. Returns false when every recorded group
  /// is done.
  bool advance(std::int64_t steps, bool last_group_too = false) {
    while (steps > 0) {
      if (!in_sweep_ && !enter(last_group_too)) return false;
      Vec<T> carried[kVectors];
      for (int v = 0; v < kVectors; ++v) carried[v] = carried_[v];
      const std::int64_t stop = position_ - steps > low_ ? position_ - steps : low_;
      steps -= position_ - stop;
      for (std::int64_t i = position_ - 1; i >= stop; --i) {
        const Vec<T> c = broadcast(cosine_[i]), s = broadcast(sine_[i]);
        for (int v = 0; v < kVectors; ++v) {
          const Vec<T> left = columns_[i * kVectors + v];
          columns_[(i + 1) * kVectors + v] = s * left + c * carried[v];
          carried[v] = c * left - s * carried[v];
        }
      }
      position_ = stop;
      for (int v = 0; v < kVectors; ++v) carried_[v] = carried[v];
      if (position_ == low_) leave();
    }
    return true;
  }

  void finish() {
    while (advance(progress_.n + 1, true)) {
    }
  }

 private:
  bool enter(bool last_group_too) {
    const std::int64_t group_end = group_ + kGroup;
    if (group_end > progress_.sweep_count && !last_group_too) return false;
    group_end_ = group_end < progress_.sweep_count ? group_end : progress_.sweep_count;
    if (group_ >= group_end_) return false;
    const auto sweep = progress_.sweeps[sweep_];
    columns_ = reinterpret_cast<Vec<T>*>(progress_.blocks + block_ * progress_.n * kBlockRows<T>);
    low_ = sweep.low;
    position_ = sweep.high;
    cosine_ = progress_.cosine + sweep.first - sweep.low;
    sine_ = progress_.sine + sweep.first - sweep.low;
    for (int v = 0; v < kVectors; ++v) carried_[v] = columns_[position_ * kVectors + v];
    in_sweep_ = true;
    return true;
  }

  void leave() {
    for (int v = 0; v < kVectors; ++v) columns_[low_ * kVectors + v] = carried_[v];
    in_sweep_ = false;
    if (++sweep_ < group_end_) return;
    sweep_ = group_;
    if (++block_ < progress_.block_count) return;
    block_ = 0;
    sweep_ = group_ = group_end_;
  }

  const QlProgress<T>& progress_;
  std::int64_t block_ = 0;
  std::int64_t group_ = 0, group_end_ = 0, sweep_ = 0, position_ = 0, low_ = 0;
  bool in_sweep_ = false;
  const T *cosine_ = nullptr, *sine_ = nullptr;
  Vec<T>* columns_ = nullptr;
  Vec<T> carried_[kVectors] = {};
};

template <typename T>
inline bool coupled(const QlProgress<T>& p, std::int64_t i) {
  const auto size = [](T x) { return x < 0 ? -x : x; };
  return !negligible<T>(size(p.off_diagonal[i]), size(p.diagonal[i]), size(p.diagonal[i + 1]));
}

/// Finds sweeps until the matrix is diagonal or the list is full, and rotates the blocks along the
/// way.
template <typename T>
void find_rotations(QlProgress<T>& progress, Rotator<T>& rotator) {
  const auto root = [](T x) { return square_root<T>(broadcast(x))[0]; };
  T *d = progress.diagonal, *e = progress.off_diagonal;
  std::int64_t used = 0;
  progress.sweep_count = 0;
  std::int64_t& low = progress.row;
  for (; low < progress.n - 1; ++low, progress.row_sweeps = 0) {
    while (coupled(progress, low)) {
      std::int64_t high = low + 1;
      while (high < progress.n - 1 && coupled(progress, high)) ++high;
      if (progress.sweep_count == progress.sweep_capacity ||
          used + high - low > progress.rotation_capacity)
        return;
      if (++progress.row_sweeps > progress.max_sweeps) {
        progress.unconverged = progress.finished = true;
        return;
      }
      const T ratio = (d[low + 1] - d[low]) / (T(2) * e[low]);
      const T length = root(ratio * ratio + T(1));
      T g = d[high] - d[low] + e[low] / (ratio + (ratio < 0 ? -length : length));
      T sine = 1, cosine = 1, p = 0;
      T *c = progress.cosine + used - low, *s = progress.sine + used - low;
      std::int64_t i = high - 1;
      for (; i >= low; --i) {
        const T f = sine * e[i], b = cosine * e[i];
        const T square = f * f + g * g;
        if (square < kTinySquare<T>) {  // splits the block here
          d[i + 1] -= p;
          e[i + 1] = 0;
          break;
        }
        const T r = root(square);
        e[i + 1] = r;
        sine = f / r;
        cosine = g / r;
        const T q = d[i + 1] - p;
        const T t = (d[i] - q) * sine + T(2) * cosine * b;
        p = sine * t;
        d[i + 1] = q + p;
        g = cosine * t - b;
        s[i] = sine;
        c[i] = cosine;
        rotator.advance(progress.block_count);
      }
      const bool whole = i < low;
      if (whole) {
        d[low] -= p;
        e[low] = g;
      }
      e[high] = 0;
      const std::int64_t first = whole ? low : i + 1;
      progress.sweeps[progress.sweep_count++] = {first, high, used - low + first};
      used += high - low;
    }
  }
  progress.finished = true;
}

template <typename T>
void iterate(QlProgress<T>& progress) {
  Rotator<T> rotator(progress);
  find_rotations(progress, rotator);
  if (progress.block_count > 0) rotator.finish();
}

/// -1 if the entry of largest magnitude of a column (the first one, if several tie) is negative,
/// else 1.
template <typename T>
inline T column_sign(std::int64_t n, const T* blocks, std::int64_t column) {
  T most = 0, least = 0;
  const auto entries = [=](std::int64_t row) { return blocks + row * n + column * kBlockRows<T>; };
  for (std::int64_t row = 0; row < n; row += kBlockRows<T>) {
    const T* x = entries(row);
    const std::int64_t rows = n - row < kBlockRows<T> ? n - row : kBlockRows<T>;
    for (std::int64_t i = 0; i < rows; ++i) {
      most = x[i] > most ? x[i] : most;
      least = x[i] < least ? x[i] : least;
    }
  }
  if (most != -least) return most > -least ? T(1) : T(-1);
  for (std::int64_t i = 0; i < n; ++i) {
    const T x = entries(i / kBlockRows<T> * kBlockRows<T>)[i % kBlockRows<T>];
    if (x == most || x == least) return x < 0 ? T(-1) : T(1);
  }
  return 1;
}

/// Sorts, fixes signs and scales back. `vectors` may be null. `scratch`: one padded row.
template <typename T>
void store(std::int64_t n, int exponent, const T* diagonal, const T* blocks, EighOrder wanted,
           T* values, T* vectors, std::int64_t vector_stride, T* scratch) {
  auto* order = reinterpret_cast<typename IntegerOf<T>::type*>(scratch);
  sort(wanted, n, diagonal, 1, order);
  const PowerOfTwo<T> scale(exponent);
  constexpr std::int64_t kTile = 16;  // columns whose target lines stay in cache together
  for (std::int64_t left = 0; left < n; left += kTile) {
    const std::int64_t right = left + kTile < n ? left + kTile : n;
    T sign[kTile];
    for (std::int64_t j = left; j < right; ++j) values[j] = scale * (diagonal[order[j]] + T(0));
    if (vectors == nullptr) continue;
    for (std::int64_t j = left; j < right; ++j) sign[j - left] = column_sign(n, blocks, order[j]);
    for (std::int64_t row = 0; row < n; row += kBlockRows<T>)
      for (std::int64_t j = left; j < right; ++j) {
        const T* x = blocks + row * n + order[j] * kBlockRows<T>;
        const T s = sign[j - left];
        for (std::int64_t i = 0; i < kBlockRows<T> && row + i < n; ++i)
          vectors[(row + i) * vector_stride + j] = s * x[i] + T(0);
      }
  }
}

}  // namespace keel::cpu::KEEL_ISA
