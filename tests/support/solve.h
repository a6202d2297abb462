#pragma once

#include "batch.h"
#include "keel/eigh.h"

namespace keel::testing {

template <typename T>
struct Solved {
  std::vector<RealOf<T>> values;  ///< batch x n
  Batch<T> vectors;
  std::vector<EighStatus> status;
};

template <typename T>
Solved<T> solve(const Batch<T>& m, const Executor& executor = serial(),
                EighOrder order = EighOrder::descending) {
  Solved<T> s{std::vector<RealOf<T>>(std::size_t(m.batch * m.n)), Batch<T>(m.batch, m.n),
              std::vector<EighStatus>(std::size_t(m.batch))};
  cpu::eigh<T>(m.view(), s.values.data(), s.vectors.view(), order, s.status.data(), executor);
  return s;
}

/// T is double or complex.
template <typename T>
Solved<T> solve_by_reference(const Batch<T>& m, EighOrder order = EighOrder::descending) {
  Solved<T> s{std::vector<double>(std::size_t(m.batch * m.n)), Batch<T>(m.batch, m.n),
              std::vector<EighStatus>(std::size_t(m.batch))};
  reference::eigh(m.view(), s.values.data(), s.vectors.view(), order, s.status.data());
  return s;
}

/// The same decomposition with the last pair first.
template <typename T>
Solved<T> backwards(const Solved<T>& s) {
  Solved<T> result = s;
  const std::int64_t n = s.vectors.n;
  for (std::int64_t b = 0; b < s.vectors.batch; ++b)
    for (std::int64_t j = 0; j < n; ++j) {
      result.values[std::size_t(b * n + j)] = s.values[std::size_t(b * n + n - 1 - j)];
      for (std::int64_t i = 0; i < n; ++i) result.vectors(b, i, j) = s.vectors(b, i, n - 1 - j);
    }
  return result;
}

}  // namespace keel::testing
