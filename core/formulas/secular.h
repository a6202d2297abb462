#pragma once

// The rank-1 update of divide and conquer: the eigenvalues of diag(pole) + rho z z^T, for ascending
// poles, are the roots of
//     f(x) = 1 / rho + sum_j z_j^2 / (pole_j - x),
// one to the right of each pole. A root is stored as the index of the nearest pole and the offset
// from it. So pole_j - root is accurate, however close the two are, which makes the vectors
// orthogonal (Gu and Eisenstat 1994). The iteration is the "middle way" of Li (1993) inside a
// bracket.

#include <cmath>
#include <cstdint>
#include <limits>

#include "host_device.h"

namespace keel {

inline constexpr int kMaxSecularSteps = 60;

template <typename T>
struct SecularRoot {
  int origin;
  T offset;
};

/// f at origin + offset, split into the poles up to `split` and those after it.
template <typename T>
struct SecularValue {
  T left, left_slope, right, right_slope;
};

/// Approximate 1 / x, sqrt(x) and 1 / sqrt(x), for iterations that correct the error. x must not be
/// subnormal.
KEEL_HOST_DEVICE inline float rough_inverse(float x) {
#ifdef __CUDA_ARCH__
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(x));
  return inverse;
#else
  return 1.0f / x;
#endif
}
KEEL_HOST_DEVICE inline float rough_root(float x) {
#ifdef __CUDA_ARCH__
  float root;
  asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(root) : "f"(x));
  return root;
#else
  return std::sqrt(x);
#endif
}
KEEL_HOST_DEVICE inline float rough_inverse_root(float x) {
#ifdef __CUDA_ARCH__
  float inverse;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(x));
  return inverse;
#else
  return 1 / std::sqrt(x);
#endif
}
KEEL_HOST_DEVICE inline double rough_inverse(double x) { return 1.0 / x; }
KEEL_HOST_DEVICE inline double rough_root(double x) { return std::sqrt(x); }
KEEL_HOST_DEVICE inline double rough_inverse_root(double x) {
#ifdef __CUDA_ARCH__
  return rsqrt(x);
#else
  return 1 / std::sqrt(x);
#endif
}

/// 1 / x, sqrt(x) and 1 / sqrt(x) to about one ulp, faster than the exact ones.
KEEL_HOST_DEVICE inline float short_inverse(float x) {
  const float guess = rough_inverse(x);
  return guess + guess * (1 - x * guess);
}
KEEL_HOST_DEVICE inline double short_inverse(double x) { return 1 / x; }
KEEL_HOST_DEVICE inline float short_inverse_root(float x) {
  const float guess = rough_inverse_root(x);
  return guess + guess / 2 * (1 - x * guess * guess);
}
KEEL_HOST_DEVICE inline double short_inverse_root(double x) { return 1 / std::sqrt(x); }
KEEL_HOST_DEVICE inline float short_root(float x) {
  const float inverse = rough_inverse_root(x);
  const float guess = x * inverse;
  return guess + inverse / 2 * (x - guess * guess);
}
KEEL_HOST_DEVICE inline double short_root(double x) { return std::sqrt(x); }

template <typename T, typename Team>
KEEL_HOST_DEVICE SecularValue<T> secular_value(const Team& team, int count, int split,
                                               const T* pole, const T* z, T origin, T offset) {
  SecularValue<T> f{0, 0, 0, 0};
  // Unroll to overlap the latency of the terms.
  KEEL_UNROLL_4
  for (int j = team.lane(); j < count; j += team.lanes()) {
    const T ratio = z[j] * rough_inverse((pole[j] - origin) - offset);
    const T value = z[j] * ratio, slope = ratio * ratio;
    const bool left = j <= split;
    f.left += left ? value : T(0);
    f.left_slope += left ? slope : T(0);
    f.right += left ? T(0) : value;
    f.right_slope += left ? T(0) : slope;
  }
  return {team.sum(f.left), team.sum(f.left_slope), team.sum(f.right), team.sum(f.right_slope)};
}

template <typename T, typename Team>
KEEL_HOST_DEVICE T secular_squares(const Team& team, int count, const T* z) {
  T squares = 0;
  for (int j = team.lane(); j < count; j += team.lanes()) squares += z[j] * z[j];
  return team.sum(squares);
}

/// The root to the right of pole i. `team` is the group of lanes that share this root: they split
/// the sums and take the same branches. team.all(done) asks all teams of the warp. A team that is
/// not `active` only takes part in the shuffles.
template <typename T, typename Team>
KEEL_HOST_DEVICE SecularRoot<T> secular_root(const Team& team, bool active, int count, int i,
                                             const T* pole, const T* z, T rho) {
  constexpr T epsilon = std::numeric_limits<T>::epsilon();
  constexpr T last_step = sizeof(T) == 4 ? T(1.7e-4) : T(7.4e-9);  // sqrt(epsilon) / 2
  const T constant = short_inverse(rho);
  const bool last = i + 1 >= count, alone = count <= 1;
  const T squares = secular_squares(team, count, z);

  // The two poles of the model function, and the middle of the interval that contains the root.
  const int first = alone ? 0 : (last ? i - 1 : i), second = alone ? 0 : first + 1;
  const T width = last ? rho * squares : pole[second] - pole[first];
  const T middle = width / 2;
  const SecularValue<T> at = secular_value(team, count, first, pole, z, pole[i], middle);
  const T value = constant + at.left + at.right;
  const bool near_own = last || value >= 0;
  const int origin = near_own ? i : second;
  T low = last && value < 0 ? middle : (near_own ? T(0) : -middle);
  T high = last && value < 0 ? width : (near_own ? middle : T(0));
  T offset = last ? middle : (low + high) / 2;
  if (!last) {  // keep the other poles' terms at their values in the middle
    const T z1 = z[first] * z[first], z2 = z[second] * z[second];
    const T rest = value + (z1 - z2) * rough_inverse(middle);
    const T side = near_own ? T(1) : T(-1);
    const T a = side * rest * width + z1 + z2, b = (near_own ? z1 : z2) * width;
    const T root = rough_root(std::abs(a * a - 4 * side * b * rest));
    const T guess = side * (a > 0 ? 2 * b * rough_inverse(a + root)
                                  : (a - root) * rough_inverse(2 * side * rest));
    if (guess > low && guess < high) offset = guess;
  }

  const T zero = pole[origin], pole1 = pole[first] - zero, pole2 = pole[second] - zero;
  bool done = !active || alone;
  const auto advance = [&](const SecularValue<T>& g) {
    const T f = constant + g.left + g.right, slope = g.left_slope + g.right_slope;
    if (std::abs(f) <= 4 * epsilon * (constant + std::abs(g.left) + std::abs(g.right))) {
      done = true;
      return;
    }
    if (f < 0)
      low = offset;
    else
      high = offset;
    const T gap1 = pole1 - offset, gap2 = pole2 - offset;
    // The root of c + ... / (gap1 - change) + ... / (gap2 - change), in the form without
    // cancellation.
    const T side = last ? T(-1) : T(1);
    T c = f - gap1 * g.left_slope - gap2 * g.right_slope;
    if (last) c = std::abs(c);
    const T a = (gap1 + gap2) * f - gap1 * gap2 * slope, b = gap1 * gap2 * f;
    const T root = side * rough_root(std::abs(a * a - 4 * b * c));
    const bool cancels = side * a > 0;
    T change = (cancels ? 2 * b : a - root) * rough_inverse(cancels ? a + root : 2 * c);
    if (!(f * change < 0)) change = -f * rough_inverse(slope);
    T next = offset + change;
    const bool fits = next > low && next < high;
    if (!fits) next = low + (high - low) / 2;
    // Convergence is quadratic: after a small step, the root is accurate.
    const T nearest = std::fmin(std::abs(gap1), std::abs(gap2));
    done = next == offset || !(high > low) || (fits && std::abs(change) <= last_step * nearest);
    offset = next;
  };
  if (last && !done) advance(at);  // the iteration starts in the middle, where f is known
  for (int step = 0; step < kMaxSecularSteps; ++step) {
    if (team.all(done)) break;
    const SecularValue<T> g = secular_value(team, count, first, pole, z, zero, offset);
    if (!done) advance(g);
  }
  if (alone) offset = rho * squares;
  return {origin, offset};
}

/// The weight z_j for which the computed roots are exact (Loewner's formula), up to a common
/// factor. With these weights the vectors z_j / (pole_j - root_i) are orthogonal to rounding.
template <typename T, typename Team>
KEEL_HOST_DEVICE T secular_weight(const Team& team, int count, int j, const T* pole, const T* z,
                                  const int* origin, const T* offset) {
  T product = 1;
  KEEL_UNROLL_4
  for (int i = team.lane(); i < count; i += team.lanes()) {
    const T gap = (pole[origin[i]] - pole[j]) + offset[i];
    product *= i == j ? gap : gap * short_inverse(pole[i] - pole[j]);
  }
  return std::copysign(std::sqrt(std::abs(team.product(product))), z[j]);
}

/// The rotation of a pair of vectors whose poles are too close to tell apart.
template <typename T>
struct SecularRotation {
  int kept, dropped;
  T c, s;
};

/// Whether two poles are so close that rotating their vectors into each other makes an error below
/// `tolerance`.
template <typename T>
KEEL_HOST_DEVICE bool too_close(T tolerance, T gap, T lower_z, T z) {
  return !(std::abs(gap * lower_z * z) > tolerance * (lower_z * lower_z + z * z));
}

/// If a pole is too close to its lower neighbour, rotates their vectors. The neighbour's weight
/// becomes zero, and it leaves the update as `dropped_pole`.
template <typename T>
KEEL_HOST_DEVICE bool drop_if_close(T tolerance, T lower_pole, T lower_z, int lower_source, T& pole,
                                    T& z, int source, T& dropped_pole,
                                    SecularRotation<T>& rotation) {
  const T gap = pole - lower_pole, squares = lower_z * lower_z + z * z;
  if (!too_close(tolerance, gap, lower_z, z)) return false;
  const T inverse = short_inverse_root(squares), c = z * inverse, s = -lower_z * inverse;
  rotation = {source, lower_source, c, s};
  dropped_pole = lower_pole + gap * s * s;
  pole = lower_pole + gap * c * c;
  z = squares * inverse;
  return true;
}

/// Deflates every pole that is too close to its neighbour, one after another. `source` moves along
/// with its pole, and deflated entries go to dropped_pole and dropped_source.
template <typename T>
void drop_close_poles(T tolerance, int& count, T* pole, T* z, int* source, int& dropped,
                      T* dropped_pole, int* dropped_source, int& rotations,
                      SecularRotation<T>* rotation) {
  int kept = 0, low_source = source[0];
  T low_pole = pole[0], low_z = z[0];
  for (int j = 1; j < count; ++j) {
    T own_pole = pole[j], own_z = z[j];
    const int own_source = source[j];
    if (drop_if_close(tolerance, low_pole, low_z, low_source, own_pole, own_z, own_source,
                      dropped_pole[dropped], rotation[rotations])) {
      dropped_source[dropped++] = low_source;
      ++rotations;
    } else {
      pole[kept] = low_pole;
      z[kept] = low_z;
      source[kept++] = low_source;
    }
    low_pole = own_pole;
    low_z = own_z;
    low_source = own_source;
  }
  pole[kept] = low_pole;
  z[kept] = low_z;
  source[kept] = low_source;
  count = kept + 1;
}

}  // namespace keel
