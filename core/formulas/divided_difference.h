#pragma once

// Each spectral function f and its first and second divided differences
//     f[x, y]    = (f(x) - f(y)) / (x - y)          f[x, x] = f'(x)
//     f[x, y, z] = (f[x, y] - f[y, z]) / (x - z)    f[x, x, x] = f''(x) / 2
// in forms that stay accurate when the arguments coincide. docs/mathematics.md derives them.

#include <cmath>
#include <cstdint>
#include <limits>

#include "eigenvalue_noise.h"
#include "formulas/pair_weight.h"
#include "host_device.h"
#include "keel/spectral.h"

namespace keel {

template <typename T>
struct SpectralMap {
  using Kind = SpectralFunction::Kind;
  Kind kind;
  T exponent;
  bool whole;  ///< the exponent is an integer: negative eigenvalues are in the domain
  T floor;     ///< f is taken of max(eigenvalue, floor)

  KEEL_HOST_DEVICE explicit SpectralMap(const SpectralFunction& function,
                                        T least = -std::numeric_limits<T>::infinity())
      : kind(function.kind),
        exponent(T(function.exponent)),
        whole(std::floor(function.exponent) == function.exponent),
        floor(least) {}

  /// Returns max(x, floor), or 0 if that is rounding noise around a zero where f has no two-sided neighbourhood.
  /// `largest` is the largest |eigenvalue|. The bound below zero is wider: no valid eigenvalue is
  /// lost there, and the matrix itself may have been rounded.
  KEEL_HOST_DEVICE T without_noise(T x, std::int64_t n, T largest) const {
    x = raised(x, floor);
    const bool root = kind == Kind::sqrt || (kind == Kind::power && exponent > 0 && !whole);
    if (!root) return x;
    return x <= eigenvalue_noise<T>(n) * largest && x >= -covariance_noise<T>(n) * largest ? T(0)
                                                                                           : x;
  }

  /// f(x), or NaN outside the domain. NaN stays NaN, though it has a power of 0.
  KEEL_HOST_DEVICE T value(T x) const {
    const T undefined = std::numeric_limits<T>::quiet_NaN();
    if (std::isnan(x)) return undefined;
    switch (kind) {
      case Kind::one:
        return 1;
      case Kind::sqrt:
        return x >= 0 ? std::sqrt(x) : undefined;
      case Kind::inv_sqrt:
        return x > 0 ? 1 / std::sqrt(x) : undefined;
      case Kind::inv:
        return x != 0 ? 1 / x : undefined;
      case Kind::log:
        return x > 0 ? std::log(x) : undefined;
      case Kind::exp:
        return std::exp(x);
      case Kind::power:
        return (x == 0 && exponent < 0) || (x < 0 && !whole) ? undefined : std::pow(x, exponent);
    }
    return undefined;
  }

  /// f[x, y] for x, y in the domain, in any order. Where it is infinite (two zeros under a root) it
  /// is 0 by convention: no gradient flows into an eigenspace that rounding cannot tell from empty.
  KEEL_HOST_DEVICE T difference(T x, T y) const {
    switch (kind) {
      case Kind::one:
        return 0;
      case Kind::sqrt: {
        const T sum = std::sqrt(x) + std::sqrt(y);
        return sum == 0 ? T(0) : 1 / sum;
      }
      case Kind::inv_sqrt: {
        const T a = std::sqrt(x), b = std::sqrt(y);
        return -(1 / a) * (1 / b) / (a + b);
      }
      case Kind::inv:
        return -(1 / x) * (1 / y);
      case Kind::log:
        return log_difference(x, y);
      case Kind::exp: {
        // Multiply by the square root twice: e^high itself may overflow where the result does not.
        const T root = std::exp((x > y ? x : y) / 2), gap = std::abs(x - y);
        return root * (gap == 0 ? T(1) : -std::expm1(-gap) / gap) * root;
      }
      case Kind::power:
        return power_difference(x, y, std::pow(std::abs(x_leads(x, y) ? x : y), exponent),
                                std::numeric_limits<T>::infinity());
    }
    return std::numeric_limits<T>::quiet_NaN();
  }
  /// The same, given f(x) and f(y). A matrix has n values but n^2 / 2 pairs, so this saves calls of
  /// pow.
  KEEL_HOST_DEVICE T difference(T x, T y, T f_x, T f_y) const {
    if (kind != Kind::power) return difference(x, y);
    const bool x_first = x_leads(x, y);
    return power_difference(x, y, std::abs(x_first ? f_x : f_y), std::abs(x_first ? f_y : f_x));
  }

  /// f[x, y, z] for x >= y >= z, given f[x, y] and f[y, z].
  KEEL_HOST_DEVICE T second_difference(T x, T y, T z, T f_xy, T f_yz) const {
    switch (kind) {
      case Kind::one:
        return 0;
      case Kind::sqrt: {
        const T a = std::sqrt(x), b = std::sqrt(y), c = std::sqrt(z);
        return b + c == 0 ? T(0) : -1 / (a + b) / (b + c) / (a + c);
      }
      case Kind::inv_sqrt: {
        const T a = std::sqrt(x), b = std::sqrt(y), c = std::sqrt(z);
        return (1 / a) * (1 / c) * (1 / b) * ((a + b + c) / (a + b)) / (b + c) / (a + c);
      }
      case Kind::inv:
        return product(1 / x, 1 / y, 1 / z);
      case Kind::log:
      case Kind::exp:
        return close(x, z) ? second_difference_series(x, y, z) : (f_xy - f_yz) / (x - z);
      case Kind::power:
        return close(x, z) ? second_difference_series(x, y, z)
                           : second_power_difference(x, y, z, f_xy, f_yz);
    }
    return std::numeric_limits<T>::quiet_NaN();
  }

 private:
  KEEL_HOST_DEVICE static T log_difference(T x, T y) {
    const T high = x > y ? x : y, low = x > y ? y : x, gap = high - low;
    if (gap == 0) return 1 / high;
    if (gap <= low) return std::log1p(gap / low) / gap;
    const T ratio = high / low;
    const bool overflow = ratio > std::numeric_limits<T>::max();
    return (overflow ? std::log(high) - std::log(low) : std::log(ratio)) / gap;
  }

  /// a b c. Multiplies the largest and the smallest first: their product overflows or underflows
  /// only if the whole product does.
  KEEL_HOST_DEVICE static T product(T a, T b, T c) {
    const T size_a = std::abs(a), size_b = std::abs(b), size_c = std::abs(c);
    const bool b_between = (size_a <= size_b) == (size_b <= size_c);
    const bool a_between = (size_b < size_a) == (size_a <= size_c);
    return b_between ? a * c * b : a_between ? b * c * a : a * b * c;
  }

  /// Whether |x|^p >= |y|^p (for p < 0: >).
  KEEL_HOST_DEVICE bool x_leads(T x, T y) const {
    return exponent > 0 ? std::abs(x) >= std::abs(y) : std::abs(x) < std::abs(y);
  }

  /// With |base| >= |other|, q = other / base, and `lead` the argument with the larger power,
  ///     f[x, y] = sign(p) lead^p / base * (1 - q^|p|) / (1 - q)
  /// The last factor is at most of size |p|, and free of cancellation if the signs agree. `power`
  /// is |lead|^p. `less_power` is the power of the other argument, or infinity if it is not known.
  KEEL_HOST_DEVICE T power_difference(T x, T y, T power, T less_power) const {
    const bool x_larger = std::abs(x) >= std::abs(y);
    const T base = x_larger ? x : y, other = x_larger ? y : x, p = std::abs(exponent);
    if (p == 0) return 0;
    if (base == 0 || (other == 0 && exponent < 0)) {
      if (exponent < 0) return std::numeric_limits<T>::quiet_NaN();
      return exponent == 1 ? T(1) : T(0);
    }
    const bool same_sign = (base < 0) == (other < 0);
    const T size = std::abs(base), less = (size - std::abs(other)) / size;  // 1 - |q|
    T factor = p;                                                           // (1 - q^p) / (1 - q)
    if (less > 0 || !same_sign) {
      // 1 - |q|^p. Most of the time here goes into the two logarithms, so subtract where that is
      // accurate.
      const T missing = less_power <= power / 4 && well_inside(power)
                            ? 1 - less_power / power
                            : -std::expm1(p * log_ratio(less, std::abs(other), size));
      factor = same_sign ? missing / less : (odd_exponent() ? 2 - missing : missing) / (2 - less);
    }
    const T lead = exponent > 0 ? base : other;
    const bool minus = ((exponent < 0) != (base < 0)) != (lead < 0 && odd_exponent());
    if (minus) factor = -factor;
    if (well_inside(power) && well_inside(power / size)) return factor * (power / size);
    // Multiply by the root twice: argument and result are representable, so their geometric means
    // are.
    const T root = std::pow(std::abs(lead), exponent / 2);
    return factor * (root / size) * root;
  }

  /// Whether x can be multiplied by a number of moderate size without overflow or underflow.
  KEEL_HOST_DEVICE static bool well_inside(T x) {
    constexpr T margin = std::numeric_limits<T>::epsilon();
    return x >= std::numeric_limits<T>::min() / margin &&
           x <= std::numeric_limits<T>::max() * margin;
  }

  /// log(other / size), accurate to rounding, given less = 1 - other / size.
  KEEL_HOST_DEVICE static T log_ratio(T less, T other, T size) {
    if (less <= T(0.5)) return std::log1p(-less);
    const T ratio = other / size;
    return ratio >= std::numeric_limits<T>::min() ? std::log(ratio)
                                                  : std::log(other) - std::log(size);
  }

  KEEL_HOST_DEVICE bool odd_exponent() const {
    return whole && std::abs(std::fmod(exponent, T(2))) == 1;
  }

  /// factor * x^(p - 2). The power is negative if x is negative and p is odd.
  KEEL_HOST_DEVICE T times_bend_of_power(T factor, T x) const {
    const T root = std::pow(std::abs(x), exponent / 2 - 1);
    return root * (x < 0 && odd_exponent() ? -factor : factor) * root;
  }

  /// f[x, y, z] of arguments that are apart. First differences, of degree p - 1, may underflow
  /// where the second one, of degree p - 2, does not. In that case the arguments are scaled to unit
  /// size.
  KEEL_HOST_DEVICE T second_power_difference(T x, T y, T z, T f_xy, T f_yz) const {
    constexpr T tiny = std::numeric_limits<T>::min() / std::numeric_limits<T>::epsilon();
    if (std::abs(f_xy) >= tiny || std::abs(f_yz) >= tiny) return (f_xy - f_yz) / (x - z);
    const T unit = std::abs(x) > std::abs(z) ? std::abs(x) : std::abs(z);
    const T a = x / unit, b = y / unit, c = z / unit;
    return times_bend_of_power((difference(a, b) - difference(b, c)) / (a - c), unit);
  }

  /// Whether the series converges fast. If not, the quotient loses only a few bits.
  KEEL_HOST_DEVICE bool close(T x, T z) const {
    if (kind == Kind::exp) return x - z <= T(0.5);
    const T bend = kind == Kind::power ? 1 + std::abs(exponent) : T(1);
    return bend * (x - z) <= T(0.25) * std::abs(x / 2 + z / 2);
  }

  /// sum over k of f^(k+2)(m) / (k+2)! * h_k, where h_k is the complete homogeneous polynomial of
  /// degree k in the offsets from the midpoint m.
  KEEL_HOST_DEVICE T second_difference_series(T x, T y, T z) const {
    const T middle = z + (x - z) / 2;
    if (middle == 0 && kind != Kind::exp) return exponent == 2 ? T(1) : T(0);
    const T unit = kind == Kind::exp ? T(1) : middle;
    const T a = (x - middle) / unit, b = (y - middle) / unit, c = (z - middle) / unit;
    T coefficient;  // f^(k+2)(m) unit^(k+2) / (k+2)!, of a power over m^p
    if (kind == Kind::exp) {
      coefficient = std::exp(middle) / 2;
    } else if (kind == Kind::log) {
      coefficient = T(-0.5);
    } else {
      coefficient = exponent * (exponent - 1) / 2;
    }
    T of_a = 1, of_ab = 1, of_abc = 1;  // h_k of the first one, two, three offsets
    T sum = coefficient;
    for (int k = 1; k < 64; ++k) {
      of_a *= a;
      of_ab = of_a + b * of_ab;
      of_abc = of_ab + c * of_abc;
      if (kind == Kind::exp) {
        coefficient /= k + 2;
      } else if (kind == Kind::log) {
        coefficient *= -T(k + 1) / T(k + 2);
      } else {
        coefficient *= (exponent - T(k + 1)) / T(k + 2);
      }
      sum += coefficient * of_abc;
      // |h_k| <= (k+1)(k+2)/2 |a|^k, as a is the largest offset in magnitude.
      const T bound = std::abs(coefficient * of_a) * (T((k + 1) * (k + 2)) / 2);
      if (bound <= std::numeric_limits<T>::epsilon() / 4 * std::abs(sum)) break;
    }
    return kind == Kind::power ? times_bend_of_power(sum, middle) : sum / unit / unit;
  }
};

}  // namespace keel
