#pragma once

// How a spectrum affects the gradient rules: its gaps, the series lengths they require, and the error of each rule's
// gradient of <W, M^(-1/2)> against the exact one in float64.

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "keel/spectral.h"

namespace keel::lab::report {

/// The number of terms K of the power-iteration series after which ratio^K <= 0.05 (Table 1 of the paper). Infinite
/// for equal eigenvalues.
double table1_terms(double ratio);

struct Neighbours {
  std::int64_t index = 0;  ///< of the larger eigenvalue, from 0
  double larger = 0, smaller = 0;
  double gap() const { return larger - smaller; }
  double ratio() const { return larger != 0 ? smaller / larger : 1; }
};

struct RuleError {
  std::string rule;     ///< with its parameter
  bool finite = false;  ///< if false, the other fields mean nothing
  double error = 0;     ///< |gradient - exact| / |exact|
  double cosine = 0;    ///< between the gradient and the exact one
};

struct SpectrumStudy {
  std::vector<double> values;          ///< descending
  std::vector<Neighbours> neighbours;  ///< n - 1 of them
  std::int64_t rank = 0;               ///< kept by Algorithm 1 of the paper
  std::int64_t energy_count = 0;       ///< how many hold 99 % of the sum
  std::vector<RuleError> rules;
};

struct StudyOptions {
  std::optional<std::int64_t> terms;   ///< of the series; empty: each rule's default
  RankPolicy policy = FullRank{};      ///< which eigenvalues M^(-1/2) keeps
  std::vector<SpectralRule> rules;     ///< to compare; empty: a standard list
  torch::Dtype type = torch::kDouble;  ///< of the rules; the reference is always float64
  std::int64_t draws = 8;              ///< number of random W; errors are over all of them
  std::uint64_t seed = 0;
};

/// `matrix` is (n, n), float64. Throws keel::Error if it is not square, symmetric and finite, or if M^(-1/2)
/// is not defined. Large and small numbers are no problem: the rules are compared on a multiple of the matrix, except with
/// Algorithm1, which depends on its size.
SpectrumStudy study(const torch::Tensor& matrix, const StudyOptions& options = {});

}  // namespace keel::lab::report
