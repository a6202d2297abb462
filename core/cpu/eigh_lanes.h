#pragma once

// A batch of symmetric eigenproblems, one matrix per SIMD lane: Householder tridiagonalisation and
// implicit QL with Wilkinson's shift. Each lane is at its own position in its own spectrum. Idle
// lanes get identity rotations, so no lane is affected by its neighbours.

#include "eigh_scaling.h"
#include "kernels.h"
#include "scratch_gap.h"
#include "simd.h"

namespace keel::cpu::KEEL_ISA {

template <typename T>
class LaneSolver {
  using V = Vec<T>;
  using M = Mask<T>;
  using Index = typename IntegerOf<T>::type;
  static constexpr int kWidth = kLanes<T>;

 public:
  static std::int64_t scratch_size(std::int64_t n) {
    return 2 * with_gap<T>(n * n * kWidth) + 7 * with_gap<T>(n * kWidth);
  }

  LaneSolver(std::int64_t n, T* scratch)
      : n_(n),
        a_(take_vectors(scratch, n * n)),
        z_(take_vectors(scratch, n * n)),
        diagonal_(take_vectors(scratch, n)),
        off_(take_vectors(scratch, n)),
        tau_(take_vectors(scratch, n)),
        cosine_(take_vectors(scratch, n)),
        sine_(take_vectors(scratch, n)),
        v_(take_vectors(scratch, n)),
        w_(take_vectors(scratch, n)) {}

  void solve(std::int64_t first, std::int64_t count, Matrices<const T> matrices, T* values,
             Matrices<T> vectors, EighOrder order, EighStatus* status, int max_sweeps) {
    int exponent[kWidth];
    bool finite[kWidth];
    load(first, count, matrices, exponent, finite);
    tridiagonalise();
    wanted_ = bool(vectors);
    if (wanted_) form_vectors();
    const M unconverged = iterate(max_sweeps);
    if (wanted_) fix_signs();
    for (std::int64_t lane = 0; lane < count; ++lane) {
      store(int(lane), first + lane, exponent[lane], finite[lane], order, values, vectors);
      status[first + lane] = !finite[lane]       ? EighStatus::not_finite
                             : unconverged[lane] ? EighStatus::by_fallback
                                                 : EighStatus::converged;
    }
  }

 private:
  static V* take_vectors(T*& next, std::int64_t count) {
    return reinterpret_cast<V*>(take(next, count * kWidth));
  }
  V& a(std::int64_t i, std::int64_t j) { return a_[i * n_ + j]; }
  V& z(std::int64_t i, std::int64_t j) { return z_[i * n_ + j]; }

  void load(std::int64_t first, std::int64_t count, Matrices<const T> matrices, int* exponent,
            bool* finite) {
    for (int lane = 0; lane < kWidth; ++lane) {
      const T* matrix = matrices[first + lane];
      const bool use = lane < count && (finite[lane] = scale_exponent(
                                            n_, matrix, matrices.row_stride, exponent[lane]));
      T* target = reinterpret_cast<T*>(a_) + lane;
      const PowerOfTwo<T> scale(use ? -exponent[lane] : 0);
      for (std::int64_t i = 0; i < n_; ++i)
        for (std::int64_t j = 0; j <= i; ++j)
          target[(i * n_ + j) * kWidth] = use ? scale * matrix[i * matrices.row_stride + j] : T(0);
    }
  }

  // Reflector k maps column k below the diagonal to a multiple of its first entry. It is stored in
  // that column, including its leading 1.
  void tridiagonalise() {
    for (std::int64_t k = 0; k + 1 < n_; ++k) {
      diagonal_[k] = a(k, k);
      const V alpha = a(k + 1, k);
      V square = {};
      for (std::int64_t i = k + 2; i < n_; ++i) square += a(i, k) * a(i, k);
      const M reflect = square > kTinySquare<T>;
      V norm = square_root<T>(alpha * alpha + square);
      norm = alpha < 0 ? norm : -norm;
      const V tau = reflect ? (norm - alpha) / norm : V{};
      const V scale = reflect ? T(1) / (alpha - norm) : V{};
      off_[k] = reflect ? norm : alpha;
      tau_[k] = tau;
      a(k + 1, k) = broadcast(T(1));
      for (std::int64_t i = k + 2; i < n_; ++i) a(i, k) *= scale;
      if (any<T>(reflect)) reflect_both_sides(k, tau);
    }
    if (n_ > 0) {
      diagonal_[n_ - 1] = a(n_ - 1, n_ - 1);
      off_[n_ - 1] = V{};
    }
  }

  // A <- H A H on the trailing lower triangle, as the rank-2 update A - v w^T - w v^T.
  void reflect_both_sides(std::int64_t k, V tau) {
    const std::int64_t begin = k + 1;
    for (std::int64_t i = begin; i < n_; ++i) v_[i] = a(i, k);
    for (std::int64_t i = begin; i < n_; ++i) {
      const V* row = &a(i, 0);
      const V vi = v_[i];
      V sum = row[i] * vi;
      for (std::int64_t j = begin; j < i; ++j) {
        sum += row[j] * v_[j];
        w_[j] += row[j] * vi;
      }
      w_[i] = sum;
    }
    V dot = {};
    for (std::int64_t i = begin; i < n_; ++i) dot += w_[i] * v_[i];
    const V half = T(0.5) * tau * dot;
    for (std::int64_t i = begin; i < n_; ++i) w_[i] = tau * (w_[i] - half * v_[i]);
    for (std::int64_t i = begin; i < n_; ++i) {
      V* row = &a(i, 0);
      const V vi = v_[i], wi = w_[i];
      for (std::int64_t j = begin; j <= i; ++j) row[j] -= vi * w_[j] + wi * v_[j];
    }
  }

  // Z = H_0 H_1 ..., accumulated from the last reflector, so that each touches the trailing block
  // only.
  void form_vectors() {
    for (std::int64_t i = 0; i < n_ * n_; ++i) z_[i] = V{};
    for (std::int64_t i = 0; i < n_; ++i) z(i, i) = broadcast(T(1));
    for (std::int64_t k = n_ - 3; k >= 0; --k) {
      const std::int64_t begin = k + 1;
      for (std::int64_t j = begin; j < n_; ++j) w_[j] = V{};
      for (std::int64_t i = begin; i < n_; ++i) {
        const V vi = a(i, k);
        for (std::int64_t j = begin; j < n_; ++j) w_[j] += vi * z(i, j);
      }
      for (std::int64_t i = begin; i < n_; ++i) {
        const V vi = tau_[k] * a(i, k);
        for (std::int64_t j = begin; j < n_; ++j) z(i, j) -= vi * w_[j];
      }
    }
  }

  // QL: sweeps over each lane's own unreduced block until all its off-diagonals are negligible.
  M iterate(int max_sweeps) {
    M low = {}, row_sweeps = {}, unconverged = {};
    while (true) {
      // Find the first coupled row of each lane, at or after its current one ...
      M next = broadcast_index(n_ - 1), high = next;
      for (std::int64_t i = n_ - 2; i >= 0; --i) {
        const M uncoupled = negligible<T>(magnitude<T>(off_[i]), magnitude<T>(diagonal_[i]),
                                          magnitude<T>(diagonal_[i + 1]));
        const M here = (Index(i) >= low);
        next = here & ~uncoupled ? broadcast_index(i) : next;
      }
      // A lane at the end is done and does not count sweeps, however long the others take.
      row_sweeps = ((next == low) & (next < Index(n_ - 1))) ? row_sweeps + 1 : M{};
      low = next;
      const M give_up = row_sweeps > Index(max_sweeps);
      unconverged |= give_up;
      const M busy = (low < Index(n_ - 1)) & ~unconverged;
      if (!any<T>(busy)) return unconverged;

      // ... the end of its block, and the shift from the block's leading corner.
      std::int64_t lowest = n_, highest = 0;
      V corner = {}, beside = {}, coupling = broadcast(T(1)), end = diagonal_[n_ - 1];
      for (std::int64_t i = n_ - 2; i >= 0; --i) {
        const M uncoupled = negligible<T>(magnitude<T>(off_[i]), magnitude<T>(diagonal_[i]),
                                          magnitude<T>(diagonal_[i + 1]));
        const M closes = uncoupled & (Index(i) > low);
        high = closes ? broadcast_index(i) : high;
        end = closes ? diagonal_[i] : end;
        const M here = Index(i) == low;
        corner = here ? diagonal_[i] : corner;
        beside = here ? diagonal_[i + 1] : beside;
        coupling = here ? off_[i] : coupling;
      }
      for (int lane = 0; lane < kWidth; ++lane) {
        if (!busy[lane]) continue;
        lowest = low[lane] < lowest ? low[lane] : lowest;
        highest = high[lane] > highest ? high[lane] : highest;
      }
      const V ratio = (beside - corner) / (T(2) * coupling);
      const V root = square_root<T>(ratio * ratio + T(1));
      const V shift = corner - coupling / (ratio + (ratio < 0 ? -root : root));
      sweep(lowest, highest, low, high, busy, end - shift);
      if (wanted_) rotate(lowest, highest);
    }
  }

  void sweep(std::int64_t lowest, std::int64_t highest, M low, M high, M busy, V g) {
    V sine = broadcast(T(1)), cosine = sine, p = {};
    for (std::int64_t i = highest - 1; i >= lowest; --i) {
      const M active = busy & (Index(i) < high) & (Index(i) >= low);
      const V f = sine * off_[i], b = cosine * off_[i];
      const V square = f * f + g * g;
      // A vanishing rotation splits the block here: stop, and let the next sweep see the pieces.
      const M split = active & (square < kTinySquare<T>);
      const M turn = active & ~split;
      const V r = square_root<T>(square);
      const M top = high == Index(i + 1);
      off_[i + 1] = split | (turn & top) ? V{} : turn ? r : off_[i + 1];
      diagonal_[i + 1] = split ? diagonal_[i + 1] - p : diagonal_[i + 1];
      busy &= ~split;
      const V new_sine = f / r, new_cosine = g / r;
      const V q = diagonal_[i + 1] - p;
      const V t = (diagonal_[i] - q) * new_sine + T(2) * new_cosine * b;
      sine = turn ? new_sine : sine;
      cosine = turn ? new_cosine : cosine;
      p = turn ? new_sine * t : p;
      diagonal_[i + 1] = turn ? q + p : diagonal_[i + 1];
      g = turn ? new_cosine * t - b : g;
      const M last = turn & (low == Index(i));
      diagonal_[i] = last ? diagonal_[i] - p : diagonal_[i];
      off_[i] = last ? g : off_[i];
      sine_[i] = turn ? new_sine : V{};
      cosine_[i] = turn ? new_cosine : broadcast(T(1));
    }
  }

  void rotate(std::int64_t lowest, std::int64_t highest) {
    std::int64_t row = 0;
    for (; row + 4 <= n_; row += 4) rotate_rows<4>(row, lowest, highest);
    for (; row < n_; ++row) rotate_rows<1>(row, lowest, highest);
  }

  template <int ROWS>
  void rotate_rows(std::int64_t row, std::int64_t lowest, std::int64_t highest) {
    V* rows = z_ + row * n_;
    V carried[ROWS];
    for (int r = 0; r < ROWS; ++r) carried[r] = rows[r * n_ + highest];
    for (std::int64_t i = highest - 1; i >= lowest; --i) {
      const V c = cosine_[i], s = sine_[i];
      for (int r = 0; r < ROWS; ++r) {
        const V left = rows[r * n_ + i];
        rows[r * n_ + i + 1] = s * left + c * carried[r];
        carried[r] = c * left - s * carried[r];
      }
    }
    for (int r = 0; r < ROWS; ++r) rows[r * n_ + lowest] = carried[r];
  }

  // Makes the entry of largest magnitude positive. Adding 0 turns -0 into 0: whether -0 occurs may
  // depend on the identity rotations of an idle lane.
  void fix_signs() {
    for (std::int64_t j = 0; j < n_; ++j) {
      V largest = {}, sign = broadcast(T(1));
      for (std::int64_t i = 0; i < n_; ++i) {
        const V size = magnitude<T>(z(i, j));
        const M larger = size > largest;
        largest = larger ? size : largest;
        sign = larger ? (z(i, j) < 0 ? broadcast(T(-1)) : broadcast(T(1))) : sign;
      }
      for (std::int64_t i = 0; i < n_; ++i) z(i, j) = sign * z(i, j) + T(0);
    }
  }

  void store(int lane, std::int64_t index, int exponent, bool finite, EighOrder wanted, T* values,
             Matrices<T> vectors) {
    T* value = values + index * n_;
    T* const vector = wanted_ ? vectors[index] : nullptr;
    if (!finite) {
      for (std::int64_t i = 0; i < n_; ++i) {
        value[i] = T(__builtin_nan(""));
        for (std::int64_t j = 0; wanted_ && j < n_; ++j)
          vector[i * vectors.row_stride + j] = value[i];
      }
      return;
    }
    const T* diagonal = reinterpret_cast<const T*>(diagonal_) + lane;
    Index* order = reinterpret_cast<Index*>(w_);  // free by now
    sort(wanted, n_, diagonal, kWidth, order);
    const PowerOfTwo<T> scale(exponent);
    for (std::int64_t i = 0; i < n_; ++i) value[i] = scale * (diagonal[order[i] * kWidth] + T(0));
    for (std::int64_t i = 0; wanted_ && i < n_; ++i) {
      const T* row = reinterpret_cast<const T*>(z_ + i * n_) + lane;
      T* target = vector + i * vectors.row_stride;
      for (std::int64_t j = 0; j < n_; ++j) target[j] = row[order[j] * kWidth];
    }
  }

  static M broadcast_index(std::int64_t i) { return Index(i) - M{}; }

  std::int64_t n_;
  bool wanted_ = false;  ///< the vectors
  V *a_, *z_, *diagonal_, *off_, *tau_, *cosine_, *sine_, *v_, *w_;
};

template <typename T>
std::int64_t lanes_scratch(std::int64_t n) {
  return LaneSolver<T>::scratch_size(n);
}

template <typename T>
void solve_lanes(std::int64_t first, std::int64_t count, Matrices<const T> matrices, T* values,
                 Matrices<T> vectors, EighOrder order, EighStatus* status, int max_sweeps,
                 T* scratch) {
  LaneSolver<T>(matrices.n, scratch)
      .solve(first, count, matrices, values, vectors, order, status, max_sweeps);
}

}  // namespace keel::cpu::KEEL_ISA
