#pragma once

#include <torch/types.h>

#include <cstdint>
#include <tuple>

#include "keel/term.h"

namespace keel::lab {

struct PowerMethod {
  std::int64_t iterations = 19;
  std::int64_t seed = 0;

  static constexpr const char* kName = "power_method";
  static void fields(auto&& self, auto&& visit) {
    visit("iterations", self.iterations, term::kFromOne);
    visit("seed", self.seed, term::kAny);
  }
};

/// The baseline that the paper compares with: power iteration from random starts, one eigenvector after another with
/// deflation, differentiated by unrolling. For comparison only: it has no safeguards against close eigenvalues,
/// singular matrices or bad starts.
///
/// Eigenvalues (..., n) and eigenvectors (..., n, n) are in the order found: largest magnitude first if it converged.
/// The signs follow from the starts, which depend only on the seed, n and the eigenvector's index. Only the symmetric
/// part of the matrix is used, so gradients are symmetric.
std::tuple<torch::Tensor, torch::Tensor> power_method(const torch::Tensor& matrix,
                                                      const PowerMethod& options = {});

}  // namespace keel::lab
