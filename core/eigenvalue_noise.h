#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "host_device.h"

namespace keel {

/// How far rounding may move an eigenvalue of an n x n matrix, relative to the largest magnitude;
/// in particular, how far from 0 a zero may end up. Independent rounding errors add up like
/// sqrt(n). The largest error of a zero eigenvalue seen on the CPU was 1.2 sqrt(n) epsilons
/// (float32 and float64, n = 2 to 1024, covariances of few samples and projectors), and 2.5 sqrt(n)
/// where all rows are alike and all rounding errors have the same sign.
template <typename T>
KEEL_HOST_DEVICE inline T eigenvalue_noise(std::int64_t n) {
  return 4 * std::sqrt(T(n)) * std::numeric_limits<T>::epsilon();
}

/// The same if the entries were rounded too, as in a covariance that was summed in T: n times the
/// error of an entry, relative to the largest magnitude. An entry is a sum in T of some 256 products
/// or of a matrix product that a user wrote, so a few epsilons. This is a bound: the largest error
/// of a zero eigenvalue seen after `moments` and `eigh` was 9 epsilons (n = 8 to 256).
template <typename T>
KEEL_HOST_DEVICE inline T covariance_noise(std::int64_t n) {
  return 10 * T(n) * std::numeric_limits<T>::epsilon();
}

/// Eigenvalues that are closer than this, relative to the largest magnitude, may be equal but for
/// rounding, which may separate equal ones by twice their noise.
template <typename T>
KEEL_HOST_DEVICE inline T repeat_noise(std::int64_t n) {
  return 10 * std::sqrt(T(n)) * std::numeric_limits<T>::epsilon();
}

}  // namespace keel
