#pragma once

// What a spectrum does to the gradient rules: gaps, the series lengths they ask for, and the error of
// each rule against the exact gradient, in float64.

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "keel/spectral.h"

namespace keel::lab::report {

/// The terms K of the power-iteration series after which ratio^K <= 0.05: Table 1 of the paper.
/// Infinite for equal eigenvalues.
double table1_terms(double ratio);

struct Neighbours {
  std::int64_t index = 0;  ///< of the larger one, from 0
  double larger = 0, smaller = 0;
  double gap() const { return larger - smaller; }
  double ratio() const { return larger != 0 ? smaller / larger : 1; }
};

struct RuleError {
  std::string rule;     ///< with its parameter
  bool finite = false;  ///< the rest means nothing where it is not
  double error = 0;     ///< |gradient - exact| / |exact|
  double cosine = 0;    ///< between the two
};

struct SpectrumStudy {
  std::vector<double> values;          ///< descending
  std::vector<Neighbours> neighbours;  ///< n - 1 of them
  std::int64_t rank = 0;               ///< that Algorithm 1 of the paper keeps
  std::int64_t energy_count = 0;       ///< that hold 99 % of the sum
  double exact_norm = 0;               ///< of the exact gradients together
  std::vector<RuleError> rules;
};

struct StudyOptions {
  SpectralFunction function;           ///< the loss is <W, f(M)>
  std::optional<std::int64_t> terms;   ///< of the series; empty: each rule's own
  RankPolicy policy = FullRank{};      ///< which eigenvalues f(M) keeps
  std::vector<SpectralRule> rules;     ///< to compare; empty: the well-known ones
  torch::Dtype type = torch::kDouble;  ///< what the rules compute in; the truth is float64 always
  std::int64_t draws = 8;              ///< of random W, over which errors are taken together
  std::uint64_t seed = 0;
};

/// `matrix` (n, n), float64. Throws keel::Error where it is not square, symmetric and finite, or the
/// function is not defined at its eigenvalues.
SpectrumStudy study(const torch::Tensor& matrix, const StudyOptions& options = {});

}  // namespace keel::lab::report
