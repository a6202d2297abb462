#pragma once

// Stage: dL_dvalues, dL_dvectors -> dL_dmatrix. The gradient of eigh.h.
//
// With B = V^T dL_dvectors, every rule has the form
//     dL_dmatrix = V (W + diag(dL_dvalues)) V^T
// The rules differ only in W, which is symmetric with a zero diagonal. docs/mathematics.md derives
// each of them.

#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "keel/executor.h"
#include "keel/matrices.h"
#include "keel/stream.h"
#include "keel/term.h"

namespace keel {

/// The textbook rule, W_ij = (B_ji - B_ij) / (2 (l_i - l_j)). Infinite or NaN at repeated
/// eigenvalues.
struct Analytic {
  static constexpr const char* kName = "analytic";
  static void fields(auto&&, auto&&) {}
};

/// The rule of Wang et al. (NeurIPS 2019), "the paper": the textbook quotient is replaced by the
/// first `terms` terms of the geometric series that power iteration with deflation produces.
/// Bounded by terms / |l|, biased for close eigenvalues.
struct PowerIteration {
  int terms = 19;

  static constexpr const char* kName = "power_iteration";
  static void fields(auto&& self, auto&& visit) { visit("terms", self.terms, term::kFromOne); }
};

/// The same series, with the same number of terms on both sides of a pair (an antisymmetric
/// kernel).
struct Taylor {
  int terms = 9;

  static constexpr const char* kName = "taylor";
  static void fields(auto&& self, auto&& visit) { visit("terms", self.terms, term::kFromOne); }
};

/// Replaces 1 / gap by gap / (gap^2 + w^2), with w = width * largest |eigenvalue|.
struct Lorentzian {
  double width = 1e-4;

  static constexpr const char* kName = "lorentzian";
  static void fields(auto&& self, auto&& visit) { visit("width", self.width, term::kAboveZero); }
};

/// The textbook rule, but pairs closer than tolerance * largest |eigenvalue| contribute nothing. It
/// is exact for every loss that depends on an eigenspace only through its projector and symmetric
/// functions of its eigenvalues. It is not exact for functions of the matrix, V f(l) V^T, not even
/// for V diag(l) V^T: use spectral.h and its exact rule for those. An empty tolerance means 10
/// sqrt(n) machine epsilons.
struct Masked {
  std::optional<double> tolerance = std::nullopt;

  static constexpr const char* kName = "masked";
  static void fields(auto&& self, auto&& visit) {
    visit("tolerance", self.tolerance, term::kFromZero);
  }
};

using GradientRule = std::variant<Analytic, PowerIteration, Taylor, Lorentzian, Masked>;

/// Throws keel::Error when a parameter is out of range.
void validate(const GradientRule& rule);

/// The rule as text: "power_iteration(terms=19)", "masked".
std::string to_string(const GradientRule& rule);

/// Reads a rule from text (keel/term.h). On an error it throws keel::Error: the message names
/// `operation`, what was expected, what it got and where.
GradientRule gradient_rule(std::string_view text,
                           std::string_view operation = "keel::gradient_rule");

/// `values` and `vectors` are the results of eigh, in either order. A null `dL_dvalues` (batch x n)
/// or `dL_dvectors` is zero; if both are null, dL_dmatrix is zero. `dL_dmatrix` is symmetric, and
/// both triangles are written.
namespace reference {
void eigh_backward(const GradientRule& rule, const double* values, Matrices<const double> vectors,
                   const double* dL_dvalues, Matrices<const double> dL_dvectors,
                   Matrices<double> dL_dmatrix);
}  // namespace reference

namespace cpu {
template <typename T>
void eigh_backward(const GradientRule& rule, const T* values, Matrices<const T> vectors,
                   const T* dL_dvalues, Matrices<const T> dL_dvectors, Matrices<T> dL_dmatrix,
                   const Executor& executor = serial());

/// The middle of svd's gradient (docs/rectangular.md), batch x k x k. With left = U^T dL_dU, right =
/// V^T dL_dV and singular values s,
///     middle = W(left + right) + diag(dL_dvalues) + K,
/// with the rule's W for the eigenvalues s. K_ij = (D_ij - D_ji) / 2 / (s_i + s_j), where D = left -
/// right, is bounded as the rule bounds W. What is null is zero.
template <typename T>
void svd_backward_middle(const GradientRule& rule, const T* values, Matrices<const T> left,
                         Matrices<const T> right, const T* dL_dvalues, Matrices<T> middle,
                         const Executor& executor = serial());
}  // namespace cpu

namespace cuda {
template <typename T>
void eigh_backward(const GradientRule& rule, const T* values, Matrices<const T> vectors,
                   const T* dL_dvalues, Matrices<const T> dL_dvectors, Matrices<T> dL_dmatrix,
                   const Stream& stream = {});
}  // namespace cuda

}  // namespace keel
