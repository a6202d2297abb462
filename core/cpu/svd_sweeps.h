#pragma once

// Sweeps of one-sided Jacobi: columns are rotated in pairs until they are orthogonal, and what is
// stacked below them is rotated with them.

#include "eigh_scaling.h"
#include "svd_ways.h"

namespace keel::cpu::KEEL_ISA {

template <typename T, typename Way>
class JacobiSweeps {
  using Number = typename Way::Number;
  using Truth = typename Way::Truth;

 public:
  /// Columns are `length` numbers apart and long. The first `height` of them are to become
  /// orthogonal. `squares` and `sizes` receive the squared and plain norms of these.
  JacobiSweeps(std::int64_t height, std::int64_t length, Number* columns, Number* squares,
               Number* sizes)
      : height_(height), length_(length), columns_(columns), square_(squares), size_(sizes) {}

  /// Returns which matrices did not converge within max_sweeps.
  Truth run(std::int64_t count, int max_sweeps) const {
    Truth turned = {};
    for (int i = 0; i < max_sweeps; ++i) {
      turned = sweep(count);
      if (!Way::any(turned)) break;
    }
    return turned;
  }

  void measure(std::int64_t j) const {
    Number* const column = columns_ + j * length_;
    square_[j] = Way::dot(height_, column, column);
    clear(j, column, square_[j] < kTinySquare<T>);
    size_[j] = Way::root(square_[j]);
  }

 private:
  static constexpr T kNoiseSquare = 16 * kEpsilon<T> * kEpsilon<T>;

  void clear(std::int64_t j, Number* column, Truth which) const {
    if (!Way::any(which)) return;
    for (std::int64_t i = 0; i < height_; ++i) column[i] = which ? Number{} : column[i];
    square_[j] = which ? Number{} : square_[j];
  }

  /// Updates the squared length of a column. After cancellation it is computed anew, and the column
  /// is cleared if only rounding noise is left: rotating that would never converge.
  void follow(std::int64_t j, Number change, Number* column) const {
    const Number before = square_[j];
    square_[j] += change;
    const Truth lost = square_[j] < T(0.125) * before;
    if (Way::any(lost)) {
      square_[j] = lost ? Way::dot(height_, column, column) : square_[j];
      clear(j, column, square_[j] < kNoiseSquare * before + kTinySquare<T>);
    }
    size_[j] = Way::root(square_[j]);
  }

  Truth sweep(std::int64_t count) const {
    const T tolerance = kEpsilon<T> * Alone<T>::root(T(height_ > 1 ? height_ : 1));
    const Number one = Way::number(T(1)), half = Way::number(T(0.5));
    Truth turned = {};
    for (std::int64_t j = 0; j < count; ++j) measure(j);
    for (std::int64_t p = 0; p + 1 < count; ++p) {
      Number* const x = columns_ + p * length_;
      Number product = Way::dot(height_, x, x + length_);
      for (std::int64_t q = p + 1; q < count; ++q) {
        Number* const y = columns_ + q * length_;
        const bool last = q + 1 == count;
        const Truth turns = Way::size(product) > tolerance * size_[p] * size_[q];
        if (!Way::any(turns)) {
          if (!last) product = Way::dot(height_, x, y + length_);
          continue;
        }
        turned |= turns;
        const Number zeta = (square_[q] - square_[p]) * half / (turns ? product : one);
        const Number reach = Way::size(zeta);
        const Truth far = reach > T(1) / kEpsilon<T>;  // its square may overflow, and adds nothing
        const Number near = far ? one : reach;
        Number t = far ? half / (far ? reach : one) : one / (near + Way::root(one + near * near));
        t = zeta < 0 ? -t : t;
        const Number c = one / Way::root(one + t * t), s = turns ? c * t : Number{};
        const Number tau = s / (one + c), moved = turns ? t * product : Number{};
        product = Way::turn(last ? 0 : height_, length_, s, tau, x, y, last ? y : y + length_);
        follow(p, -moved, x);
        follow(q, moved, y);
      }
    }
    return turned;
  }

  std::int64_t height_, length_;
  Number *columns_, *square_, *size_;
};

}  // namespace keel::cpu::KEEL_ISA
