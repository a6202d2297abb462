#pragma once

// Stage: values, vectors -> f(M) = V f(values) V^T, over all eigenvalues or the leading `rank` of
// them. Backward: dL_dresult -> dL_dmatrix, by the exact rule (no pole at repeated eigenvalues) or
// by a GradientRule.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "keel/executor.h"
#include "keel/gradient_rule.h"
#include "keel/matrices.h"
#include "keel/stream.h"

namespace keel {

/// The function f that is applied to each eigenvalue. `one` with a rank cut gives the projector
/// onto the leading eigenvectors.
struct SpectralFunction {
  enum class Kind { one, sqrt, inv_sqrt, inv, log, exp, power };
  Kind kind = Kind::inv_sqrt;
  double exponent = 1.0;  ///< of `power` only

  static void fields(auto&& self, auto&& visit) {
    if (self.kind == Kind::power) visit("exponent", self.exponent, term::kAny);
  }
};

/// "one", "sqrt", "inv_sqrt", "inv", "log", "exp" or "power(exponent=0.5)". Reading it back works
/// as in gradient_rule().
std::string to_string(const SpectralFunction& function);
SpectralFunction spectral_function(std::string_view text,
                                   std::string_view operation = "keel::spectral_function");

/// Keeps every eigenvalue.
struct FullRank {
  static constexpr const char* kName = "full";
  static void fields(auto&&, auto&&) {}
};
/// Keeps the `count` leading eigenvalues (at most n).
struct LeadingCount {
  std::int64_t count = 1;

  static constexpr const char* kName = "leading_count";
  static void fields(auto&& self, auto&& visit) { visit("count", self.count, term::kFromOne); }
};
/// Keeps the fewest leading eigenvalues whose sum reaches `fraction` of the total. Negative ones
/// count as zero.
struct LeadingEnergy {
  double fraction = 0.99;

  static constexpr const char* kName = "leading_energy";
  static void fields(auto&& self, auto&& visit) {
    visit("fraction", self.fraction, term::kFraction);
  }
};
/// Keeps the leading eigenvalues that are reliable, as the paper's Algorithm 1 does: go down the
/// spectrum and stop at the first eigenvalue that is not above `eps`, or whose Rayleigh quotient on the deflated matrix is off by a relative
/// `rayleigh_tolerance` or more, or once `energy` of the total sum is reached. An empty condition
/// is switched off.
///
/// Rounding moves an eigenvalue by up to 10 n machine epsilons of the largest. An eigenvalue within
/// that of `eps` is not above it: it is a zero of the covariance, and its eigenvector is noise. And
/// eigenvalues that are equal to rounding (10 sqrt(n) epsilons) to the one that reaches the energy
/// are kept with it, or dropped with it. Without this the rank of a covariance of fewer directions
/// than channels depends on rounding errors, and with it the gradient.
struct LeadingReliable {
  std::optional<double> eps = 1e-4;
  std::optional<double> rayleigh_tolerance = 0.1;
  std::optional<double> energy = 1.0 - 1e-4;
  /// The paper's text keeps the eigenvalue that reaches the energy. Its pseudo-code drops it, and
  /// so drops one direction of every matrix, however well conditioned. We follow the text.
  bool keep_reaching = true;
  /// Compare as the paper's Algorithm 1 is written, without a margin for rounding.
  bool literal = false;

  static constexpr const char* kName = "leading_reliable";
  static constexpr const char* kAlias = "algorithm1";
  static void fields(auto&& self, auto&& visit) {
    visit("eps", self.eps, term::kFromZero);
    visit("rayleigh_tolerance", self.rayleigh_tolerance, term::kAboveZero);
    visit("energy", self.energy, term::kFraction);
    visit("keep_reaching", self.keep_reaching);
    visit("literal", self.literal);
  }
};
using Algorithm1 = LeadingReliable;
/// Every policy keeps at least one eigenvalue (for n > 0).
using RankPolicy = std::variant<FullRank, LeadingCount, LeadingEnergy, LeadingReliable>;

void validate(const RankPolicy& policy);
std::string to_string(const RankPolicy& policy);
RankPolicy rank_policy(std::string_view text, std::string_view operation = "keel::rank_policy");

/// Divided differences of f (Daleckii-Krein), finite at repeated eigenvalues. Between a kept and a
/// dropped eigenvalue a finite exact value need not exist. There it uses the paper's series with
/// `terms` terms.
struct Exact {
  int terms = 19;

  static constexpr const char* kName = "exact";
  static void fields(auto&& self, auto&& visit) { visit("terms", self.terms, term::kFromOne); }
};
/// Exact, or any GradientRule.
using SpectralRule = term::Joined<std::variant<Exact>, GradientRule>;

void validate(const SpectralRule& rule);
std::string to_string(const SpectralRule& rule);
SpectralRule spectral_rule(std::string_view text,
                           std::string_view operation = "keel::spectral_rule");

/// Where f is not defined at a kept eigenvalue (log or square root of a negative number, inverse of
/// zero), the result of that matrix is NaN. Under `sqrt` and positive fractional powers,
/// eigenvalues up to 4 sqrt(n) machine epsilons above zero, relative to the largest, count as zero:
/// rounding puts the zeros of a singular covariance there. The same holds down to 10 n epsilons
/// below zero, where the zeros of a covariance may end up that was itself summed with rounding
/// errors. No gradient flows between two such zeros, because the slope is infinite.
///
/// `values` are in descending order, as eigh writes them with EighOrder::descending: the rank
/// counts from the largest. `rank` holds one number per matrix and is never null; more than n means
/// all. A matrix whose values are NaN gets rank 1 and the result NaN.
namespace reference {
void spectral_rank(const RankPolicy& policy, Matrices<const double> matrices, const double* values,
                   Matrices<const double> vectors, std::int64_t* rank);
void spectral(const SpectralFunction& function, const double* values,
              Matrices<const double> vectors, const std::int64_t* rank, Matrices<double> result);
void spectral_backward(const SpectralFunction& function, const SpectralRule& rule,
                       const double* values, Matrices<const double> vectors,
                       const std::int64_t* rank, Matrices<const double> dL_dresult,
                       Matrices<double> dL_dmatrix);
void spectral_second_backward(const SpectralFunction& function, const double* values,
                              Matrices<const double> vectors, Matrices<const double> dL_dresult,
                              Matrices<const double> dL2_ddL_dmatrix,
                              Matrices<double> dL2_ddL_dresult, Matrices<double> dL2_dmatrix);
}  // namespace reference

namespace cpu {
/// The rank that the policy chooses for each matrix. Only Algorithm1 uses `matrices`, and reads
/// their lower triangles.
template <typename T>
void spectral_rank(const RankPolicy& policy, Matrices<const T> matrices, const T* values,
                   Matrices<const T> vectors, std::int64_t* rank,
                   const Executor& executor = serial());

/// result = V_r f(values_r) V_r^T.
template <typename T>
void spectral(const SpectralFunction& function, const T* values, Matrices<const T> vectors,
              const std::int64_t* rank, Matrices<T> result, const Executor& executor = serial());

/// dL_dmatrix = V (F o (V^T sym(dL_dresult) V)) V^T, with F from the rule. It is symmetric.
template <typename T>
void spectral_backward(const SpectralFunction& function, const SpectralRule& rule, const T* values,
                       Matrices<const T> vectors, const std::int64_t* rank,
                       Matrices<const T> dL_dresult, Matrices<T> dL_dmatrix,
                       const Executor& executor = serial());

/// The backward of spectral_backward, for the exact rule at full rank. Given the gradient of some
/// L2 with respect to dL_dmatrix, it computes those with respect to dL_dresult and to the matrix
/// itself. It is exact at repeated eigenvalues too (second divided differences). Either output may
/// be null.
template <typename T>
void spectral_second_backward(const SpectralFunction& function, const T* values,
                              Matrices<const T> vectors, Matrices<const T> dL_dresult,
                              Matrices<const T> dL2_ddL_dmatrix, Matrices<T> dL2_ddL_dresult,
                              Matrices<T> dL2_dmatrix, const Executor& executor = serial());
}  // namespace cpu

namespace cuda {
template <typename T>
void spectral_rank(const RankPolicy& policy, Matrices<const T> matrices, const T* values,
                   Matrices<const T> vectors, std::int64_t* rank, const Stream& stream = {});

template <typename T>
void spectral(const SpectralFunction& function, const T* values, Matrices<const T> vectors,
              const std::int64_t* rank, Matrices<T> result, const Stream& stream = {});

template <typename T>
void spectral_backward(const SpectralFunction& function, const SpectralRule& rule, const T* values,
                       Matrices<const T> vectors, const std::int64_t* rank,
                       Matrices<const T> dL_dresult, Matrices<T> dL_dmatrix,
                       const Stream& stream = {});

template <typename T>
void spectral_second_backward(const SpectralFunction& function, const T* values,
                              Matrices<const T> vectors, Matrices<const T> dL_dresult,
                              Matrices<const T> dL2_ddL_dmatrix, Matrices<T> dL2_ddL_dresult,
                              Matrices<T> dL2_dmatrix, const Stream& stream = {});
}  // namespace cuda

}  // namespace keel
