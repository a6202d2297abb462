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
inline Tensor entrywise_differences(const Loss& loss, const Tensor& matrix) {
  const Tensor result = torch::zeros_like(matrix);
  for (std::int64_t i = 0; i < matrix.numel(); ++i) {
    const auto along = [&](double distance) {
      Tensor moved = matrix.detach().clone();
      moved.view(-1)[i] += distance;
      return loss(moved).item<double>();
    };
    result.view(-1)[i] = testing::central_difference(along, /*step=*/1e-3);
  }
  return result;
}

}  // namespace keel::test
