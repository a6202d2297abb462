#pragma once

// The layer under test. It replaces norms of a network and is chosen by name.

#include <torch/nn/module.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "keel/torch/nn.h"
#include "lab/models/baselines.h"

namespace keel::lab {

struct NormOptions {
  /// batch (BatchNorm), zca (whitening), pca (denoising) or none.
  std::string kind = "batch";
  /// Channels whitened together; must divide the layer's channels. 0: all of them. For zca and pca.
  std::int64_t group_size = 0;
  /// How gradients pass through the eigendecomposition: one of the library's rules, exact, power_iteration, taylor,
  /// lorentzian, masked, analytic; or one of baselines.h, which replace the decomposition itself: power_method, textbook,
  /// and for zca alone released_textbook, released_power_iteration, newton_schulz. For zca and pca.
  std::string rule = "exact";
  /// The rule's number (terms, iterations, width or tolerance); empty: the rule's default.
  std::optional<double> parameter = std::nullopt;
  /// Directions to whiten: algorithm1 (those that the paper's Algorithm 1 keeps, to the letter), algorithm1_margin (with
  /// margins for rounding, the library's default) or full (all of them). For zca; the released baselines have their own
  /// choice, and newton_schulz keeps all.
  std::string rank = "algorithm1";
  double eps = 1e-4;            ///< added to the covariance's diagonal, > 0; zca, pca
  double energy = 0.99;         ///< share of the variance kept, in (0, 1]; pca with components 0
  std::int64_t components = 0;  ///< directions kept of each group; 0: by `energy`; pca
  double momentum = 0.1;        ///< weight of the new value in running statistics, in [0, 1]
};

/// The names NormOptions accepts, in display order.
const std::vector<std::string>& norm_kinds();
const std::vector<std::string>& norm_rules();
const std::vector<std::string>& norm_ranks();

/// Whether the layer decomposes a covariance: zca and pca do.
bool whitens(const NormOptions& options);

/// Whether a training step with this layer can be captured in a CUDA graph.
bool can_be_captured(const NormOptions& options);

/// Whether the layer's statistics can follow the weights before it (keel::nn::Following). Layers with baselines cannot, and
/// train in one process alone.
bool can_follow(const NormOptions& options);

/// Checks the options together, and with the channels; for_each_field in lab/train/options.h has the range of each. Throws
/// keel::Error that names the option, the expected value, the actual one and, if given, the norm's name in the network.
void validate(const NormOptions& options, std::int64_t channels, const std::string& name = "");

/// Baselines replace the decomposition itself, in forward too.
using LayerRule = term::Joined<SpectralRule, Baseline>;
LayerRule layer_rule(const std::string& name, std::optional<double> parameter = {});

/// BatchNorm, ZcaWhitening, PcaDenoising, BaselineNorm or Identity over `channels` channels.
std::shared_ptr<torch::nn::Module> make_norm(const NormOptions& options, std::int64_t channels);

/// Sizes of named tensors.
using Shapes = std::map<std::string, std::vector<std::int64_t>>;
/// The parameters and buffers of what make_norm would return.
Shapes norm_shapes(const NormOptions& options, std::int64_t channels);

/// Calls a layer that make_norm returned.
torch::Tensor apply_norm(torch::nn::Module& norm, const torch::Tensor& input);

/// An activation that is used twice, by a block and by its shortcut. If it comes from a fused norm, `past`
/// is the same memory with its own gradient, and its backward adds the two gradients while reading them. Otherwise
/// `past` is undefined.
struct Forked {
  torch::Tensor through, past;
};

/// max(0, norm(input) + residual) for any layer of make_norm. Whitening and a fused BatchNorm (fused_norm.h) add and
/// clamp in their own passes, without intermediate rounding. Otherwise norm, addition and ReLU run one after another.
Forked norm_relu(torch::nn::Module& norm, const torch::Tensor& input,
                 const torch::Tensor& residual = {});

}  // namespace keel::lab
