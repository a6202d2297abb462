#pragma once

#include <utility>

#include "support.h"

namespace keel::test {

const std::vector<std::pair<std::int64_t, std::int64_t>> kShapes = {{3, 3}, {5, 3}, {3, 5}};
const std::vector<std::vector<double>> kSingularValues = {{3, 2, 1}, {2, 2, 1}, {1, 1, 1}};

/// A dense matrix with these singular values.
inline Tensor with_singular_values(std::int64_t m, std::int64_t n,
                                   const std::vector<double>& values) {
  const auto [u, s, v] = torch::linalg_svd(random({m, n}, 5), false);
  return (u * torch::tensor(values, at::kDouble)).matmul(v).contiguous();
}

/// dL/dA by fourth-order differences, entry by entry.
inline Tensor entrywise_differences(const Loss& loss, const Tensor& matrix, double step = 1e-3) {
  const Tensor result = torch::zeros_like(matrix);
  const auto moved = [&](std::int64_t at, double distance) {
    Tensor a = matrix.detach().clone();
    a.view(-1)[at] += distance;
    return loss(a).item<double>();
  };
  for (std::int64_t i = 0; i < matrix.numel(); ++i)
    result.view(-1)[i] =
        (8 * (moved(i, step) - moved(i, -step)) - (moved(i, 2 * step) - moved(i, -2 * step))) /
        (12 * step);
  return result;
}

}  // namespace keel::test
