#pragma once

// Rules, functions and rank policies as the strings and numbers that operators carry.

#include <vector>

#include "keel/spectral.h"
#include "keel/subspace.h"
#include "types.h"

namespace keel::ops {

struct RuleName {
  std::string name;
  std::optional<double> parameter;
};
RuleName name_of(const GradientRule& rule);
RuleName name_of(const SpectralRule& rule);

std::string name_of(SpectralFunction::Kind kind);

/// "full" [], "leading_count" [count], "leading_energy" [fraction],
/// "algorithm1" [eps, rayleigh_tolerance, energy, keep_reaching], NaN for a condition switched off.
struct PolicyName {
  std::string name;
  std::vector<double> parameters;
};
PolicyName name_of(const RankPolicy& policy);

/// A map's name ("zca", "pca_denoising", "pca_whitening"), its eps and its rank policy.
struct MapName {
  std::string name;
  double eps;
  PolicyName rank;
};
MapName name_of(const SubspaceMap& map);

/// Back from the names, validated. Messages begin with `operation`.
GradientRule gradient_rule_of(const char* operation, StringView name, Optional<double> parameter);
SpectralRule spectral_rule_of(const char* operation, StringView name, Optional<double> parameter);
SpectralFunction spectral_function_of(const char* operation, StringView name, double exponent);
RankPolicy rank_policy_of(const char* operation, StringView name, at::ArrayRef<double> parameters);
/// "algorithm1" without parameters takes the map's own eps as its condition on eigenvalues.
SubspaceMap subspace_map_of(const char* operation, StringView name, double eps,
                            StringView rank_policy, at::ArrayRef<double> rank_parameters);

}  // namespace keel::ops
