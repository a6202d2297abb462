#include "lab/models/norm.h"

#include <fmt/format.h>
#include <torch/nn/modules/linear.h>

#include "lab/models/baseline_norm.h"
#include "lab/models/fused_norm.h"
#include "lab/require.h"

namespace keel::lab {
namespace {

using torch::nn::IdentityImpl;

keel::nn::WhiteningOptions whitening_options(const NormOptions& options, std::int64_t channels) {
  keel::nn::WhiteningOptions result{
      .num_features = channels, .eps = options.eps, .momentum = options.momentum};
  if (options.group_size > 0) result.group_size = options.group_size;
  if (options.kind == "zca") {
    if (options.rank == "full")
      result.rank = FullRank{};
    else
      result.rank = Algorithm1{.eps = options.eps, .literal = options.rank == "algorithm1"};
  }
  if (options.kind == "pca") {
    if (options.components > 0)
      result.rank = LeadingCount{options.components};
    else
      result.rank = LeadingEnergy{options.energy};
  }
  return result;
}

template <typename Layer, typename Map>
std::shared_ptr<torch::nn::Module> whitening(const NormOptions& options, std::int64_t channels) {
  keel::nn::WhiteningOptions given = whitening_options(options, channels);
  return std::visit(
      [&](const auto& rule) -> std::shared_ptr<torch::nn::Module> {
        if constexpr (std::is_constructible_v<Baseline, decltype(rule)>) {
          Map map{.eps = given.eps};
          if (given.rank) map.rank = *given.rank;
          return std::make_shared<BaselineNormImpl>(given, map, rule);
        } else {
          given.rule = rule;
          return std::make_shared<Layer>(given);
        }
      },
      layer_rule(options.rule, options.parameter));
}

}  // namespace

bool whitens(const NormOptions& options) { return options.kind == "zca" || options.kind == "pca"; }

bool can_be_captured(const NormOptions& options) {
  return !whitens(options) ||
         std::visit([]<typename Rule>(const Rule&) { return kCapturable<Rule>; },
                    layer_rule(options.rule, options.parameter));
}

bool can_follow(const NormOptions& options) {
  return options.kind == "batch" ||
         (whitens(options) &&
          std::visit(
              []<typename Rule>(const Rule&) { return !std::is_constructible_v<Baseline, Rule>; },
              layer_rule(options.rule, options.parameter)));
}

const std::vector<std::string>& norm_kinds() {
  static const std::vector<std::string> names{"batch", "zca", "pca", "none"};
  return names;
}

const std::vector<std::string>& norm_rules() {
  static const std::vector<std::string> names = term::names<LayerRule>();
  return names;
}

const std::vector<std::string>& norm_ranks() {
  static const std::vector<std::string> names{"algorithm1", "algorithm1_margin", "full"};
  return names;
}

LayerRule layer_rule(const std::string& name, std::optional<double> parameter) {
  require_one_of("rule", name, norm_rules());
  std::string text = name;
  if (parameter) {  // sets the rule's first field
    std::string field;
    std::visit(
        [&](const auto& rule) {
          rule.fields(rule, [&](const char* each, const auto&...) {
            if (field.empty()) field = each;
          });
        },
        term::read<LayerRule>("rule", name));
    require(!field.empty(), "expected no parameter of {}, got {}", name, *parameter);
    text = fmt::format("{}({}={})", name, field, *parameter);
  }
  return term::read<LayerRule>("rule", text);
}

void validate(const NormOptions& options, std::int64_t channels, const std::string& name) {
  const auto expect = [](bool holds, const char* what, auto got) {
    require(holds, "expected {}, got {}", what, got);
  };
  expect(options.eps > 0, "eps > 0", options.eps);
  expect(options.energy > 0, "energy > 0", options.energy);
  const LayerRule rule = layer_rule(options.rule, options.parameter);
  if (!whitens(options)) return;
  std::visit(
      [&]<typename Rule>(const Rule&) {
        if constexpr (std::is_constructible_v<Baseline, Rule>)
          expect(options.kind == "zca" || kForEveryMap<Rule>,
                 fmt::format("kind zca with rule {}", options.rule).c_str(), options.kind);
      },
      rule);
  const std::int64_t group = options.group_size > 0 ? options.group_size : channels;
  expect(channels % group == 0,
         (name.empty() ? fmt::format("group_size to divide the layer's {} channels", channels)
                       : fmt::format("group_size to divide the {} channels of {}", channels, name))
             .c_str(),
         group);
  expect(options.components <= group,
         fmt::format("components <= {}, the channels of a group{}", group,
                     name.empty() ? "" : " of " + name)
             .c_str(),
         options.components);
}

std::shared_ptr<torch::nn::Module> make_norm(const NormOptions& options, std::int64_t channels) {
  validate(options, channels);
  if (options.kind == "zca") return whitening<keel::nn::ZcaWhiteningImpl, Zca>(options, channels);
  if (options.kind == "pca")
    return whitening<keel::nn::PcaDenoisingImpl, PcaDenoising>(options, channels);
  if (options.kind == "batch") return std::make_shared<BatchNormImpl>(channels, options.momentum);
  return std::make_shared<IdentityImpl>();
}

Shapes norm_shapes(const NormOptions& options, std::int64_t channels) {
  const std::vector<std::int64_t> each{channels};
  Shapes shapes{
      {"weight", each}, {"bias", each}, {"running_mean", each}, {"num_batches_tracked", {}}};
  if (options.kind == "batch") {
    shapes["running_var"] = each;
  } else if (whitens(options)) {
    const std::int64_t d = options.group_size > 0 ? options.group_size : channels;
    shapes["running_matrix"] = {channels / d, d, d};
    if (options.kind == "pca") shapes["running_variance"] = each;
  } else {
    shapes.clear();
  }
  return shapes;
}

torch::Tensor apply_norm(torch::nn::Module& norm, const torch::Tensor& input) {
  if (auto* whitening = norm.as<keel::nn::WhiteningImpl>()) return whitening->forward(input);
  if (auto* batch = norm.as<BatchNormImpl>()) return batch->forward(input);
  require(norm.as<IdentityImpl>() != nullptr, "expected a layer of make_norm, got {}", norm.name());
  return input;
}

Forked norm_relu(torch::nn::Module& norm, const torch::Tensor& input,
                 const torch::Tensor& residual) {
  auto* const batch = norm.as<BatchNormImpl>();
  if (batch != nullptr && fuses(*batch, input, residual))
    return fused_norm(*batch, input, residual, /*relu=*/true);
  if (auto* whitening = norm.as<keel::nn::WhiteningImpl>())
    return {whitening->forward_then(keel::nn::Activation::relu, input, residual), {}};
  const torch::Tensor output = apply_norm(norm, input);
  if (residual.defined()) return {(output + residual).relu_(), {}};
  // Only BatchNorm's output may be overwritten: Identity has returned its input.
  return {batch != nullptr ? output.relu_() : output.relu(), {}};
}

}  // namespace keel::lab
