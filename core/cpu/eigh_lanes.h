#pragma once

// A batch of symmetric or Hermitian eigenproblems, one matrix per SIMD lane: Householder
// tridiagonalisation and implicit QL with Wilkinson's shift. Each lane is at its own position in its
// own spectrum. Idle lanes get identity rotations, so no lane is affected by its neighbours. A
// diagonal matrix of phases makes the tridiagonal matrix of a Hermitian one real.

#include "eigh_scaling.h"
#include "kernels.h"
#include "scratch_gap.h"
#include "simd.h"

namespace keel::cpu::KEEL_ISA {

template <typename T>
struct LaneEntry {
  using type = Vec<T>;
};
template <typename T>
struct LaneEntry<std::complex<T>> {
  using type = ComplexVec<T>;
};

/// E is the type of a matrix's entries, T that of its values.
template <typename E, typename T = RealOf<E>>
class LaneSolver {
  using X = typename LaneEntry<E>::type;
  using V = Vec<T>;
  using M = Mask<T>;
  using Index = typename IntegerOf<T>::type;
  static constexpr int kWidth = kLanes<T>;
  static constexpr bool kComplex = kIsComplex<E>;
  static constexpr std::int64_t kParts = kComplex ? 2 : 1;

 public:
  static std::int64_t scratch_size(std::int64_t n) {
    return 2 * with_gap<T>(kParts * n * n * kWidth) + 5 * with_gap<T>(n * kWidth) +
           (kComplex ? 3 : 2) * with_gap<T>(kParts * n * kWidth);
  }

  LaneSolver(std::int64_t n, T* scratch)
      : n_(n),
        a_(take_entries<X>(scratch, n * n)),
        z_(take_entries<X>(scratch, n * n)),
        diagonal_(take_entries<V>(scratch, n)),
        off_(take_entries<V>(scratch, n)),
        tau_(take_entries<V>(scratch, n)),
        cosine_(take_entries<V>(scratch, n)),
        sine_(take_entries<V>(scratch, n)),
        v_(take_entries<X>(scratch, n)),
        w_(take_entries<X>(scratch, n)),
        phase_(kComplex ? take_entries<X>(scratch, n) : nullptr) {}

  void solve(std::int64_t first, std::int64_t count, Matrices<const E> matrices, T* values,
             Matrices<E> vectors, EighOrder order, EighStatus* status, int max_sweeps) {
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
  template <typename Entry>
  static Entry* take_entries(T*& next, std::int64_t count) {
    return reinterpret_cast<Entry*>(take(next, count * std::int64_t(sizeof(Entry) / sizeof(T))));
  }
  X& a(std::int64_t i, std::int64_t j) { return a_[i * n_ + j]; }
  X& z(std::int64_t i, std::int64_t j) { return z_[i * n_ + j]; }

  static X conjugate(X x) {
    if constexpr (kComplex)
      return {x.re, -x.im};
    else
      return x;
  }
  static V real(X x) {
    if constexpr (kComplex)
      return x.re;
    else
      return x;
  }
  /// The squared size.
  static V square_of(X x) {
    if constexpr (kComplex)
      return x.re * x.re + x.im * x.im;
    else
      return x * x;
  }
  static X one() {
    if constexpr (kComplex)
      return {broadcast(T(1)), V{}};
    else
      return broadcast(T(1));
  }

  void load(std::int64_t first, std::int64_t count, Matrices<const E> matrices, int* exponent,
            bool* finite) {
    for (int lane = 0; lane < kWidth; ++lane) {
      const E* matrix = matrices[first + lane];
      const bool use = lane < count && (finite[lane] = scale_exponent(
                                            n_, matrix, matrices.row_stride, exponent[lane]));
      T* target = reinterpret_cast<T*>(a_) + lane;
      const PowerOfTwo<T> scale(use ? -exponent[lane] : 0);
      for (std::int64_t i = 0; i < n_; ++i) {
        const T* row = use ? reinterpret_cast<const T*>(matrix + i * matrices.row_stride) : nullptr;
        for (std::int64_t j = 0; j <= kParts * i; ++j)
          target[(i * n_ * kParts + j) * kWidth] = use ? scale * row[j] : T(0);
        if constexpr (kComplex) target[((i * n_ + i) * kParts + 1) * kWidth] = 0;
      }
    }
  }

  // Reflector k maps column k below the diagonal to a multiple of its first entry. It is stored in
  // that column, including its leading 1.
  void tridiagonalise() {
    if constexpr (kComplex) phase_[0] = one();
    for (std::int64_t k = 0; k + 1 < n_; ++k) {
      diagonal_[k] = real(a(k, k));
      V square = {};
      for (std::int64_t i = k + 2; i < n_; ++i) square += square_of(a(i, k));
      const M reflect = square > kTinySquare<T>;
      const X scale = reflector(k, reflect, square);
      a(k + 1, k) = one();
      for (std::int64_t i = k + 2; i < n_; ++i) a(i, k) = scale * a(i, k);
      if (any<T>(reflect)) reflect_both_sides(k, tau_[k]);
    }
    if (n_ > 0) {
      diagonal_[n_ - 1] = real(a(n_ - 1, n_ - 1));
      off_[n_ - 1] = V{};
    }
  }

  // Fills off_[k] and tau_[k]. Returns what scales the reflector such that its first entry is 1.
  X reflector(std::int64_t k, M reflect, V square) {
    const X alpha = a(k + 1, k);
    if constexpr (kComplex) {
      // An entry that is too small for a phase counts as zero, also in the norm.
      const M turns = square_of(alpha) > kTinySquare<T>;
      const V alpha_square = turns ? square_of(alpha) : V{}, size = square_root<T>(alpha_square);
      const X phase = {turns ? alpha.re / size : broadcast(T(1)), turns ? alpha.im / size : V{}};
      const V norm = square_root<T>(alpha_square + square), sum = size + norm;
      off_[k] = reflect ? -norm : size;
      tau_[k] = reflect ? sum / norm : V{};
      const X product = phase_[k] * phase;
      // A product of many would drift away from size 1.
      const X next = (T(1.5) - T(0.5) * square_of(product)) * product;
      const M joined = off_[k] != 0;
      phase_[k + 1] = {joined ? next.re : broadcast(T(1)), joined ? next.im : V{}};
      return {reflect ? phase.re / sum : V{}, reflect ? -phase.im / sum : V{}};
    } else {
      V norm = square_root<T>(alpha * alpha + square);
      norm = alpha < 0 ? norm : -norm;
      tau_[k] = reflect ? (norm - alpha) / norm : V{};
      off_[k] = reflect ? norm : alpha;
      return reflect ? T(1) / (alpha - norm) : V{};
    }
  }

  // A <- H A H on the trailing lower triangle, as the rank-2 update A - v w^H - w v^H.
  void reflect_both_sides(std::int64_t k, V tau) {
    const std::int64_t begin = k + 1;
    for (std::int64_t i = begin; i < n_; ++i) v_[i] = a(i, k);
    for (std::int64_t i = begin; i < n_; ++i) {
      const X* row = &a(i, 0);
      const X vi = v_[i];
      X sum = real(row[i]) * vi;
      for (std::int64_t j = begin; j < i; ++j) {
        sum += row[j] * v_[j];
        w_[j] += conjugate(row[j]) * vi;
      }
      w_[i] = sum;
    }
    V dot = {};
    for (std::int64_t i = begin; i < n_; ++i) dot += real(conjugate(w_[i]) * v_[i]);
    const V half = T(0.5) * tau * dot;
    for (std::int64_t i = begin; i < n_; ++i) w_[i] = tau * (w_[i] - half * v_[i]);
    for (std::int64_t i = begin; i < n_; ++i) {
      X* row = &a(i, 0);
      const X vi = v_[i], wi = w_[i];
      for (std::int64_t j = begin; j <= i; ++j)
        row[j] -= vi * conjugate(w_[j]) + wi * conjugate(v_[j]);
    }
  }

  // Z = H_0 H_1 ..., accumulated from the last reflector, so that each touches the trailing block
  // only.
  void form_vectors() {
    for (std::int64_t i = 0; i < n_ * n_; ++i) z_[i] = X{};
    for (std::int64_t i = 0; i < n_; ++i) z(i, i) = kComplex ? phase_[i] : one();
    for (std::int64_t k = n_ - 3; k >= 0; --k) {
      const std::int64_t begin = k + 1;
      for (std::int64_t j = begin; j < n_; ++j) w_[j] = X{};
      for (std::int64_t i = begin; i < n_; ++i) {
        const X vi = conjugate(a(i, k));
        for (std::int64_t j = begin; j < n_; ++j) w_[j] += vi * z(i, j);
      }
      for (std::int64_t i = begin; i < n_; ++i) {
        const X vi = tau_[k] * a(i, k);
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
    constexpr int kRows = 4 / kParts;
    std::int64_t row = 0;
    for (; row + kRows <= n_; row += kRows) rotate_rows<kRows>(row, lowest, highest);
    for (; row < n_; ++row) rotate_rows<1>(row, lowest, highest);
  }

  template <int ROWS>
  void rotate_rows(std::int64_t row, std::int64_t lowest, std::int64_t highest) {
    X* rows = z_ + row * n_;
    X carried[ROWS];
    for (int r = 0; r < ROWS; ++r) carried[r] = rows[r * n_ + highest];
    for (std::int64_t i = highest - 1; i >= lowest; --i) {
      const V c = cosine_[i], s = sine_[i];
      for (int r = 0; r < ROWS; ++r) {
        const X left = rows[r * n_ + i];
        rows[r * n_ + i + 1] = s * left + c * carried[r];
        carried[r] = c * left - s * carried[r];
      }
    }
    for (int r = 0; r < ROWS; ++r) rows[r * n_ + lowest] = carried[r];
  }

  // Makes the entry of largest magnitude positive (the first one, if several tie). Adding 0 turns -0 into 0: whether -0 occurs may
  // depend on the identity rotations of an idle lane.
  void fix_signs() {
    for (std::int64_t j = 0; j < n_; ++j) {
      V largest = {};
      if constexpr (kComplex) {
        X peak = {};
        M place = {};
        for (std::int64_t i = 0; i < n_; ++i) {
          const V size = square_of(z(i, j));
          const M larger = size > largest;
          largest = larger ? size : largest;
          peak = {larger ? z(i, j).re : peak.re, larger ? z(i, j).im : peak.im};
          place = larger ? broadcast_index(i) : place;
        }
        const V size = square_root<T>(largest);
        const X turn = {peak.re / size, -peak.im / size};
        for (std::int64_t i = 0; i < n_; ++i) {
          const X turned = turn * z(i, j);
          const M here = place == Index(i);
          z(i, j) = {(here ? size : turned.re) + T(0), (here ? V{} : turned.im) + T(0)};
        }
      } else {
        V sign = broadcast(T(1));
        for (std::int64_t i = 0; i < n_; ++i) {
          const V size = magnitude<T>(z(i, j));
          const M larger = size > largest;
          largest = larger ? size : largest;
          sign = larger ? (z(i, j) < 0 ? broadcast(T(-1)) : broadcast(T(1))) : sign;
        }
        for (std::int64_t i = 0; i < n_; ++i) z(i, j) = sign * z(i, j) + T(0);
      }
    }
  }

  void store(int lane, std::int64_t index, int exponent, bool finite, EighOrder wanted, T* values,
             Matrices<E> vectors) {
    T* value = values + index * n_;
    T* const vector = wanted_ ? reinterpret_cast<T*>(vectors[index]) : nullptr;
    const std::int64_t stride = kParts * vectors.row_stride;
    if (!finite) {
      for (std::int64_t i = 0; i < n_; ++i) {
        value[i] = T(__builtin_nan(""));
        for (std::int64_t j = 0; wanted_ && j < kParts * n_; ++j) vector[i * stride + j] = value[i];
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
      T* target = vector + i * stride;
      for (std::int64_t j = 0; j < n_; ++j)
        for (std::int64_t part = 0; part < kParts; ++part)
          target[j * kParts + part] = row[(order[j] * kParts + part) * kWidth];
    }
  }

  static M broadcast_index(std::int64_t i) { return Index(i) - M{}; }

  std::int64_t n_;
  bool wanted_ = false;  ///< the vectors
  X *a_, *z_;
  V *diagonal_, *off_, *tau_, *cosine_, *sine_;
  X *v_, *w_, *phase_;
};

template <typename E>
std::int64_t lanes_scratch(std::int64_t n) {
  return LaneSolver<E>::scratch_size(n);
}

template <typename E>
void solve_lanes(std::int64_t first, std::int64_t count, Matrices<const E> matrices,
                 RealOf<E>* values, Matrices<E> vectors, EighOrder order, EighStatus* status,
                 int max_sweeps, RealOf<E>* scratch) {
  LaneSolver<E>(matrices.n, scratch)
      .solve(first, count, matrices, values, vectors, order, status, max_sweeps);
}

}  // namespace keel::cpu::KEEL_ISA
