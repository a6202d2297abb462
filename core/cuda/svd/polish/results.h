#pragma once

#include "cuda/svd/polish/math.h"
#include "keel/svd.h"

namespace keel::cuda {

/// Where the results go.
template <typename T>
struct PolishResults {
  T* values;
  Rectangles<T> left, right;
  SvdStatus* status;
  bool* is_left;  ///< which matrices another solver must still solve

  /// Those of matrix b, which is solved. `wide` if it is wider than tall.
  template <typename Team>
  KEEL_HOST_DEVICE void store(const Team& team, TeamPolish<T, Team>& solver, std::int64_t b, int n,
                              bool wide) const {
    T *const own_values = values + b * n, *const own_left = left[b], *const own_right = right[b];
    const std::int64_t down = left.row_stride, across = right.row_stride;
    solver.give(
        !wide, [&](int c, T x) { own_values[c] = x; },
        [&](int i, int c, T x) {
          *(wide ? own_right + c * across + i : own_left + i * down + c) = x;
        },
        [&](int c, int j, T x) {
          *(wide ? own_left + j * down + c : own_right + c * across + j) = x;
        });
    if (status != nullptr && team.thread() == 0) status[b] = SvdStatus::converged;
  }
};

}  // namespace keel::cuda
