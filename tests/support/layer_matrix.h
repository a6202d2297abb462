#pragma once

// Shared by the tests of layer_matrix on every device.

#include <cstdint>
#include <vector>

#include "keel/layer_matrix.h"
#include "support/batch.h"

namespace keel::testing {

/// What the forward pass writes, poisoned until then.
template <typename T>
struct Mapped {
  Batch<T> result;
  std::vector<T> values;
  Batch<T> vectors;
  std::vector<std::int64_t> rank;

  Mapped(std::int64_t batch, std::int64_t n)
      : result(batch, n, T(-77)),
        values(std::size_t(batch * n), T(-77)),
        vectors(batch, n, T(-77)),
        rank(std::size_t(batch), -77) {}
  LayerMatrixState<T> state() { return {values.data(), vectors.view(), rank.data()}; }
};

}  // namespace keel::testing
