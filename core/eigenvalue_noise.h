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

/// How far below zero an eigenvalue of a positive semidefinite matrix may end up if the entries
/// were rounded too, as in a covariance that was summed in T: n times the error of an entry.
template <typename T>
KEEL_HOST_DEVICE inline T negative_noise(std::int64_t n) {
  return 10 * T(n) * std::numeric_limits<T>::epsilon();
}

}  // namespace keel
