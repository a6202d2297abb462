#pragma once

// Columns of X = A J that A^T A could not tell apart, because their squares differ by little beside its rounding errors:
// those of small values, clusters, or nothing but rounding errors. X^T X, computed from X itself, knows their angles
// relative to their own sizes. Its eigenvectors group by group, each at its own scale, turn them further. Each such turn
// gains as many digits of the squares as A^T A had.
//
// Columns are in descending order of size, more or less. A group is a range: from the first to the last of columns that
// are entangled with one another.

#include <cmath>
#include <limits>

#include "host_device.h"

namespace keel {

/// Numbers and places of memory per column.
inline constexpr int kRegroupNumbers = 4, kRegroupPlaces = 3;

/// Replaces w = X^T X (entry (i, j) at j step + i) by a matrix of the same eigenvectors per group: each group's block
/// without its mean, at unit size, shifted so that no two groups share eigenvalues and descending order keeps the
/// groups' order. `apart` is the angle from which columns are entangled. The threads of a team call it together.
template <typename T, typename Team>
KEEL_HOST_DEVICE void regroup(const Team& team, int n, T apart, T* w, int step, T* numbers,
                              int* places) {
  T *const square = numbers, *const mean = square + n, *const row = mean + n,
           *const center = row + n;
  int *const last = places, *const starts = last + n, *const first = starts + n;
  const auto for_each = [&](const auto& body) {
    for (int i = team.thread(); i < n; i += team.size()) body(i);
    team.sync();
  };
  for_each([&](int i) { square[i] = w[i * step + i]; });
  // The last column that a column is entangled with.
  const T tolerance = std::numeric_limits<T>::epsilon() * std::sqrt(T(n));
  for_each([&](int i) {
    int found = i;
    KEEL_UNROLL_BY(8)
    for (int j = i + 1; j < n; ++j) {
      const T size = std::abs(w[j * step + i]);
      if (size > tolerance * std::sqrt(square[i] * square[j]) &&
          size > apart * std::abs(square[i] - square[j]))
        found = j;
    }
    last[i] = found;
  });
  for_each([&](int i) {
    int reach = -1;
    for (int k = 0; k < i; ++k) reach = last[k] > reach ? last[k] : reach;
    starts[i] = reach < i ? 1 : 0;
  });
  for_each([&](int i) {
    int from = i, to = i;
    while (starts[from] == 0) --from;
    while (to + 1 < n && starts[to + 1] == 0) ++to;
    first[i] = from;
    last[i] = to;
  });
  for_each([&](int i) {
    const int from = first[i], to = last[i];
    T low = square[from], high = low;
    for (int k = from; k <= to; ++k) {
      low = std::fmin(low, square[k]);
      high = std::fmax(high, square[k]);
    }
    mean[i] = low + (high - low) / 2;
    T sum = std::abs(square[i] - mean[i]);
    KEEL_UNROLL_BY(8)
    for (int j = from; j <= to; ++j) sum += j == i ? T(0) : std::abs(w[j * step + i]);
    row[i] = sum;
  });
  for_each([&](int i) {
    int before = 0;
    for (int k = 0; k < first[i]; ++k) before += starts[k] != 0 && last[k] > k ? 1 : 0;
    center[i] =
        T(-2.25) * T(before) + (first[i] == last[i] ? T(0.1) * (T(0.5) - T(i) / T(n)) : T(-1.125));
  });
  // Rows' sums bound the eigenvalues of a block.
  for_each([&](int i) {
    T most = 0;
    for (int k = first[i]; k <= last[i]; ++k) most = std::fmax(most, row[k]);
    square[i] = most > 0 ? 1 / most : T(0);
  });
  for (int at = team.thread(); at < n * n; at += team.size()) {
    const int j = at / n, i = at - j * n;
    T& x = w[j * step + i];
    const T off = i == j ? x - mean[i] : x;
    x = first[i] == first[j] ? off * square[i] : T(0);
    if (i == j) x += center[i];
  }
  team.sync();
}

}  // namespace keel
