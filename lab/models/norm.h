#pragma once

// The layer under test, which replaces norms of a network and is chosen by name.

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "keel/torch/nn.h"
#include "lab/models/power_method.h"

namespace keel::lab {

struct NormOptions {
  /// batch (BatchNorm), zca (whitening), pca (denoising), none, or folded: none, with the bias that
  /// a folded layer leaves in the convolution before it.
  std::string kind = "batch";
  /// Channels whitened together; must divide the layer's channels. 0: all of them. zca, pca.
  std::int64_t group_size = 0;
  /// How the gradient passes the eigendecomposition: exact, power_iteration, taylor, lorentzian,
  /// masked, and the paper's two baselines: analytic, and power_method, which replaces the
  /// decomposition itself by plain power iteration. zca, pca.
  std::string rule = "exact";
  /// The rule's one number (terms, iterations, width or tolerance); empty: its own default.
  std::optional<double> parameter = std::nullopt;
  /// Directions that are whitened: algorithm1 (those the paper's rule keeps) or full (all of them). zca.
  std::string rank = "algorithm1";
  double eps = 1e-4;            ///< added to the covariance's diagonal, > 0. zca, pca.
  double energy = 0.99;         ///< share of the variance kept, in (0, 1]. pca with components 0.
  std::int64_t components = 0;  ///< directions kept of each group; 0: as many as energy asks. pca.
  double momentum = 0.1;        ///< the new value's weight in running statistics, in [0, 1]
};

/// The names NormOptions takes, in the order to show them in.
const std::vector<std::string>& norm_kinds();
const std::vector<std::string>& norm_rules();
const std::vector<std::string>& norm_ranks();

/// Whether the layer decomposes a covariance: zca and pca.
bool whitens(const NormOptions& options);

/// Throws keel::Error that names the option, what was expected, what it got and, if given, the norm's name in the network.
void validate(const NormOptions& options, std::int64_t channels, const std::string& name = "");

/// PowerMethod replaces the decomposition itself, forward too.
using LayerRule = term::Joined<SpectralRule, std::variant<PowerMethod>>;
LayerRule layer_rule(const std::string& name, std::optional<double> parameter = {});

/// BatchNorm, ZcaWhitening, PcaDenoising, PowerMethodNorm or Identity over `channels` channels.
std::shared_ptr<torch::nn::Module> make_norm(const NormOptions& options, std::int64_t channels);

/// Calls whatever make_norm returned.
torch::Tensor apply_norm(torch::nn::Module& norm, const torch::Tensor& input);

}  // namespace keel::lab
