#include "lab/models/resnet.h"

#include <fmt/format.h>
#include <fnmatch.h>
#include <torch/nn/modules/container/modulelist.h>

#include "lab/models/batch_norm.h"
#include "lab/models/blocks.h"
#include "lab/require.h"

namespace keel::lab {
namespace {

struct Architecture {
  std::int64_t width;                ///< channels of the first stage, before a block's expansion
  std::vector<std::int64_t> blocks;  ///< of each stage
  bool bottleneck;
};

Architecture architecture(const ModelOptions& options) {
  if (options.name == "resnet18") return {64, {2, 2, 2, 2}, false};
  if (options.name == "resnet50") return {64, {3, 4, 6, 3}, true};
  return {options.width, {1, 1, 1}, false};
}

const ModelOptions& validated(const ModelOptions& options) {
  validate(options);
  return options;
}

struct BlockSite {
  std::string stage;   ///< "layer1"
  std::int64_t place;  ///< index in its stage
  BlockImpl::Shape shape;

  std::string name() const { return fmt::format("{}.{}", stage, place); }
};

std::vector<BlockSite> block_sites(const ModelOptions& options) {
  const Architecture plan = architecture(options);
  std::vector<BlockSite> sites;
  std::int64_t inputs = plan.width, width = plan.width;
  for (std::size_t stage = 0; stage < plan.blocks.size(); ++stage, width *= 2)
    for (std::int64_t place = 0; place < plan.blocks[stage]; ++place) {
      const std::int64_t stride = stage > 0 && place == 0 ? 2 : 1;
      sites.push_back(
          {fmt::format("layer{}", stage + 1), place, {inputs, width, stride, plan.bottleneck}});
      inputs = sites.back().shape.outputs();
    }
  return sites;
}

/// Calls visit(convolution, norm, shape) for each convolution with a norm, in the order of the data.
template <typename Visit>
void for_each_normed(const ModelOptions& options, const Visit& visit) {
  visit("conv1", "bn1", Normed::Shape{3, first_channels(options), 3, 1});
  for (const BlockSite& block : block_sites(options)) {
    const std::string name = block.name() + ".";
    int number = 0;
    for (const Normed::Shape& part : block.shape.chain()) {
      const std::string digit = std::to_string(++number);
      visit(name + "conv" + digit, name + "bn" + digit, part);
    }
    if (block.shape.has_shortcut())
      visit(name + "downsample.0", name + "downsample.1", block.shape.shortcut());
  }
}

/// The comma-separated names or patterns, without surrounding spaces.
std::vector<std::string> patterns_in(const std::string& list) {
  std::vector<std::string> words(1);
  for (const char c : list) {
    if (c == ',')
      words.emplace_back();
    else if (c != ' ')
      words.back() += c;
  }
  return words;
}

NormPlan plan_of(const ModelOptions& options) {
  NormPlan plan{options.norm, {}};
  for (const NormSite& site : tested_sites(options)) plan.names.insert(site.name);
  return plan;
}

}  // namespace

const std::vector<std::string>& model_names() {
  static const std::vector<std::string> names{"resnet18", "resnet50", "resnet_small"};
  return names;
}

std::int64_t first_channels(const ModelOptions& options) { return architecture(options).width; }

std::vector<NormSite> norm_sites(const ModelOptions& options) {
  std::vector<NormSite> sites;
  for_each_normed(options,
                  [&](const std::string&, const std::string& norm, const Normed::Shape& part) {
                    sites.push_back({norm, part.outputs});
                  });
  return sites;
}

std::vector<NormSite> tested_sites(const ModelOptions& options) {
  std::vector<NormSite> sites = norm_sites(options);
  if (options.where == "first") return {sites.front()};
  if (options.where == "all") return sites;
  std::string known;
  for (const NormSite& site : sites) known += (known.empty() ? "" : ", ") + site.name;
  std::set<std::string> wanted;
  for (const std::string& pattern : patterns_in(options.where)) {
    int found = 0;
    for (const NormSite& site : sites) {
      if (::fnmatch(pattern.c_str(), site.name.c_str(), 0) != 0) continue;
      ++found;
      require(wanted.insert(site.name).second,
              fmt::format("expected each norm once in where, got {} twice", site.name));
    }
    require(
        found > 0,
        fmt::format(
            "expected where to be first, all or names of norms, or patterns of them ({}), got '{}'",
            known, pattern));
  }
  std::erase_if(sites, [&](const NormSite& site) { return wanted.count(site.name) == 0; });
  return sites;
}

Shapes state_shapes(const ModelOptions& options) {
  const NormPlan plan = plan_of(options);
  Shapes shapes;
  for_each_normed(options, [&](const std::string& convolution, const std::string& norm,
                               const Normed::Shape& part) {
    shapes[convolution + ".weight"] = {part.outputs, part.inputs, part.kernel, part.kernel};
    for (const auto& [name, shape] :
         norm_shapes(plan.tests(norm) ? options.norm : NormOptions(), part.outputs))
      shapes[norm + "." + name] = shape;
  });
  shapes["fc.weight"] = {options.classes, block_sites(options).back().shape.outputs()};
  shapes["fc.bias"] = {options.classes};
  return shapes;
}

std::int64_t last_size(const ModelOptions& options, std::int64_t size) {
  const std::size_t stages = architecture(options).blocks.size();
  for (std::size_t stage = 1; stage < stages; ++stage) size = (size + 1) / 2;
  return size;
}

void validate(const ModelOptions& options) {
  const auto expect = [](bool holds, const std::string& what, std::int64_t got) {
    require(holds, fmt::format("expected {}, got {}", what, got));
  };
  const std::int64_t channels = first_channels(options);
  expect(options.dead_channels >= 0 && options.dead_channels < channels,
         fmt::format("dead_channels from 0 to {} of the {} channels", channels - 1, channels),
         options.dead_channels);
  for (const NormSite& site : tested_sites(options))
    validate(options.norm, site.channels, options.where == "first" ? "" : site.name);
}

ResNetImpl::ResNetImpl(const ModelOptions& options)
    : Module("keel::lab::ResNet"), options_(validated(options)) {
  const NormPlan plan = plan_of(options_);
  const std::int64_t width = first_channels(options_);
  stem_ = std::make_unique<Normed>(*this, "", "conv1", "bn1", Normed::Shape{3, width, 3, 1}, plan);
  torch::nn::ModuleList stage{nullptr};
  for (const BlockSite& site : block_sites(options_)) {
    if (site.place == 0) stage = register_module(site.stage, torch::nn::ModuleList());
    blocks_.emplace_back(site.name(), site.shape, plan);
    stage->push_back(blocks_.back().ptr());
  }
  const std::int64_t features = block_sites(options_).back().shape.outputs();
  fc_ = register_module("fc", torch::nn::Linear(features, options_.classes));
  if (options_.dead_channels > 0) {
    const torch::NoGradGuard no_grad;
    first_convolution()
        ->weight.narrow(0, width - options_.dead_channels, options_.dead_channels)
        .zero_();
  }
}

torch::Tensor ResNetImpl::forward(const torch::Tensor& input, const Watch* watch) {
  TORCH_CHECK(input.dim() == 4 && input.size(1) == 3,
              "keel::lab::ResNet: expected (N, 3, H, W), got ", input.sizes());
  Forked x = stem_->relu(input, /*residual=*/{}, watch);
  for (Block& block : blocks_) x = block->forward(x, watch);
  const torch::Tensor features = x.through.mean({2, 3}), output = fc_(features);
  if (watch != nullptr) (*watch)("fc", features, output);
  return output;
}

std::vector<Normed*> ResNetImpl::normed() const {
  std::vector<Normed*> all{stem_.get()};
  for (const Block& block : blocks_)
    for (Normed* part : block.ptr()->normed()) all.push_back(part);
  return all;
}

std::vector<Normed*> ResNetImpl::tested() const {
  const NormPlan plan = plan_of(options_);
  std::vector<Normed*> found;
  for (Normed* part : normed())
    if (plan.tests(part->norm_name())) found.push_back(part);
  return found;
}

void ResNetImpl::fuse_norms(bool fused) {
  for (Normed* part : normed())
    if (auto* const norm = part->norm()->as<BatchNormImpl>()) norm->fused = fused;
}

}  // namespace keel::lab
