#pragma once

#include <torch/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "keel/spectral.h"
#include "keel/term.h"
#include "keel/torch/spectral.h"

namespace keel {

/// The function f of each singular value.
struct UnitValues {
  static constexpr const char* kName = "one";
  static void fields(auto&&, auto&&) {}
};
struct SameValues {
  static constexpr const char* kName = "identity";
  static void fields(auto&&, auto&&) {}
};
/// 1 / s, and 0 where s <= rtol * the largest. An empty rtol means max(m, n) machine epsilons, as in torch::linalg_pinv.
struct InverseValues {
  std::optional<double> rtol = std::nullopt;

  static constexpr const char* kName = "inv";
  static void fields(auto&& self, auto&& visit) { visit("rtol", self.rtol, term::kFromZero); }
};
/// s^exponent. With a negative exponent, a singular value of 0 makes the matrix's result NaN.
struct PowerOfValues {
  double exponent = 1.0;

  static constexpr const char* kName = "power";
  static void fields(auto&& self, auto&& visit) { visit("exponent", self.exponent, term::kAny); }
};
/// max(s - threshold, 0).
struct SoftThreshold {
  double threshold = 0.0;

  static constexpr const char* kName = "soft_threshold";
  static void fields(auto&& self, auto&& visit) {
    visit("threshold", self.threshold, term::kFromZero);
  }
};
using SingularFunction =
    std::variant<UnitValues, SameValues, InverseValues, PowerOfValues, SoftThreshold>;

/// Converts to text and back, as gradient_rule() does: "one", "identity", "inv(rtol=1e-06)", "power(exponent=0.5)",
/// "soft_threshold(threshold=0.1)".
std::string to_string(const SingularFunction& function);
SingularFunction singular_function(std::string_view text,
                                   std::string_view operation = "keel::singular_function");

struct Singular {
  torch::Tensor result;  ///< (..., m, n), U_r f(S_r) V_r^T
  torch::Tensor kept;  ///< (...), int64: how many singular values were kept, from the largest down
};

/// U f(S) V^T of (..., m, n) matrices A = U S V^T, over all singular values or those that `rank` keeps. The counterpart of
/// keel::spectral for matrices of any shape. `rank` is FullRank, LeadingCount, or LeadingEnergy, which counts squares of
/// singular values.
///
/// - The gradient is exact, even at repeated values. It has a true pole where a kept and a dropped value meet: pairs closer
///   than 10 sqrt(k) machine epsilons times the largest value get 0 there.
/// - At full rank `one`, `identity` and `inv` (with the default rtol) can be differentiated to any order, powers twice. A
///   higher derivative is an error, never a wrong number.
Singular singular(const torch::Tensor& matrix, const SingularFunction& function,
                  const RankPolicy& rank = FullRank{});

/// The same for a function of your own, as keel::spectral takes it. It should vanish at zero: at a singular value of zero the
/// gradient takes its slope there, and second derivatives are an error.
Singular singular(const torch::Tensor& matrix, const ElementwiseFunction& function,
                  const RankPolicy& rank = FullRank{});

/// The Moore-Penrose inverse (..., n, m). Its gradient includes the dropped values.
torch::Tensor pinv(const torch::Tensor& matrix, std::optional<double> rtol = std::nullopt);

/// The nearest matrix of the rank that `rank` chooses.
torch::Tensor low_rank(const torch::Tensor& matrix, const RankPolicy& rank);

/// The proximal map of threshold * nuclear norm: U max(S - threshold, 0) V^T.
torch::Tensor soft_threshold(const torch::Tensor& matrix, double threshold);

}  // namespace keel
