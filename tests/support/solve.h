#pragma once

#include "batch.h"
#include "keel/eigh.h"

namespace keel::testing {

template <typename T>
struct Solved {
  std::vector<T> values;  ///< batch x n
  Batch<T> vectors;
  std::vector<EighStatus> status;
};

template <typename T>
Solved<T> solve(const Batch<T>& m, const Executor& executor = serial()) {
  Solved<T> s{std::vector<T>(std::size_t(m.batch * m.n)), Batch<T>(m.batch, m.n),
              std::vector<EighStatus>(std::size_t(m.batch))};
  cpu::eigh<T>(m.view(), s.values.data(), s.vectors.view(), s.status.data(), executor);
  return s;
}

inline Solved<double> solve_by_reference(const Batch<double>& m) {
  Solved<double> s{std::vector<double>(std::size_t(m.batch * m.n)), Batch<double>(m.batch, m.n),
                   std::vector<EighStatus>(std::size_t(m.batch))};
  reference::eigh(m.view(), s.values.data(), s.vectors.view(), s.status.data());
  return s;
}

}  // namespace keel::testing
