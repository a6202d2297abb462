#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "host_device.h"

namespace keel {

/// How far rounding may move an eigenvalue of an n x n matrix, relative to the largest magnitude: where a
/// zero may come out. Independent roundings add up like sqrt(n). The most that the CPU's solvers were seen
/// to make of a zero is 1.2 sqrt(n) epsilons (float32 and float64, n = 2 to 1024, covariances of few samples
/// and projectors), and 2.5 where all rows are alike and roundings go one way.
template <typename T>
KEEL_HOST_DEVICE inline T eigenvalue_noise(std::int64_t n) {
  return 4 * std::sqrt(T(n)) * std::numeric_limits<T>::epsilon();
}

/// How far below zero an eigenvalue of a positive semidefinite matrix may lie whose entries were rounded on
/// the way as well, such as a covariance added up in T: n times the error of an entry.
template <typename T>
KEEL_HOST_DEVICE inline T negative_noise(std::int64_t n) {
  return 10 * T(n) * std::numeric_limits<T>::epsilon();
}

}  // namespace keel
