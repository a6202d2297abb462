#pragma once

// What the paper compares with, and what a user might choose instead, for comparison only. None of them is safe against
// close eigenvalues, singular matrices or bad starts. docs/reproduce.md says which table uses which.

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <tuple>
#include <type_traits>
#include <variant>

#include "keel/term.h"

namespace keel::lab {

/// Power iteration as the paper's text has it: from random starts that never change, one eigenvector after another with
/// deflation, differentiated by unrolling. The layer's rank policy chooses among what it finds.
struct PowerMethod {
  std::int64_t iterations = 19;
  std::int64_t seed = 0;

  static constexpr const char* kName = "power_method";
  static void fields(auto&& self, auto&& visit) {
    visit("iterations", self.iterations, term::kFromOne);
    visit("seed", self.seed, term::kAny);
  }
};

/// The textbook gradient by its formula, for the eigenvectors that the layer's rank policy keeps.
struct Textbook {
  static constexpr const char* kName = "textbook";
  static void fields(auto&&, auto&&) {}
};

/// The textbook baseline of the paper's released code: torch's svd with torch's backward, which divides by s_i^2 - s_j^2.
/// It keeps the values up to and with the first one <= eps. With `slip`, as released, it keeps only the largest one where
/// no value is <= eps; without it, all of them. ZCA alone.
struct ReleasedTextbook {
  std::int64_t slip = 1;

  static constexpr const char* kName = "released_textbook";
  static void fields(auto&& self, auto&& visit) {
    visit("slip", self.slip, term::Range{.least = 0, .most = 1});
  }
};

/// Power iteration as in the paper's released code: every vector starts anew in every forward pass, and it stops before the
/// first value that is larger than the one before or smaller than eps. The first value is always kept. Backward is the
/// paper's formula for the unrolled steps, which takes the deflated matrix as symmetric. ZCA alone.
struct ReleasedPowerIteration {
  std::int64_t iterations = 19;

  static constexpr const char* kName = "released_power_iteration";
  static void fields(auto&& self, auto&& visit) {
    visit("iterations", self.iterations, term::kFromOne);
  }
};

/// IterNorm (Huang et al., CVPR 2019): M^(-1/2) by Newton-Schulz steps, without eigenvectors. ZCA at full rank alone.
struct NewtonSchulz {
  std::int64_t iterations = 5;

  static constexpr const char* kName = "newton_schulz";
  static void fields(auto&& self, auto&& visit) {
    visit("iterations", self.iterations, term::kFromOne);
  }
};

using Baseline =
    std::variant<PowerMethod, Textbook, ReleasedTextbook, ReleasedPowerIteration, NewtonSchulz>;

/// Whether a layer that denoises can have it too.
template <typename Method>
inline constexpr bool kForEveryMap =
    std::is_same_v<Method, PowerMethod> || std::is_same_v<Method, Textbook>;
/// Whether a step on a GPU runs without waiting for the device, so that it can be captured in a graph.
template <typename Method>
inline constexpr bool kCapturable = !std::is_same_v<Method, ReleasedTextbook>;

/// Eigenvalues (..., n) and eigenvectors (..., n, n) are in the order found: largest magnitude first if it converged.
/// The signs follow from the starts, which depend only on the seed and n. Only the symmetric
/// part of the matrix is used, so gradients are symmetric.
std::tuple<torch::Tensor, torch::Tensor> power_method(const torch::Tensor& matrix,
                                                      const PowerMethod& options = {});

struct Eigenpairs {
  torch::Tensor values;   ///< (..., n)
  torch::Tensor vectors;  ///< (..., n, n), in columns
  torch::Tensor kept;     ///< (..., n), bool: a leading part. What is not kept has no gradient.
};

/// `kept` says which values to keep. Pairs of dropped eigenvectors have no part in the formula.
Eigenpairs textbook(const torch::Tensor& matrix,
                    const std::function<torch::Tensor(const torch::Tensor& values)>& kept);
/// A matrix for which svd does not converge gets NaN. On CUDA svd waits for the device.
Eigenpairs released_textbook(const torch::Tensor& matrix, double eps,
                             const ReleasedTextbook& options = {});
/// Draws its starts from torch's generator of the matrix's device. Dropped values and vectors are 0.
Eigenpairs released_power_iteration(const torch::Tensor& matrix, double eps,
                                    const ReleasedPowerIteration& options = {});
/// An approximation of the matrix's inverse root.
torch::Tensor newton_schulz(const torch::Tensor& matrix, const NewtonSchulz& options = {});

}  // namespace keel::lab
