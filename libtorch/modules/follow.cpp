#include "keel/torch/nn/follow.h"

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <typeinfo>
#include <vector>

#include "check.h"
#include "keel/torch/nn.h"
#include "ops/operators.h"
#include "types.h"

namespace keel::nn {

using torch::Tensor;

namespace {

constexpr const char* kFollowing = "keel::nn::Following";
constexpr const char* kZeros = "constant";  // in the words of at::pad
constexpr std::int64_t kEnough = 1024;      // positions for each of d + 1: an error of S of 1/64
constexpr std::int64_t kOfOneImage = 16, kAtLeast = 64;  // positions
constexpr double kLittle = 1 << 24;  // multiplications that any look may take: a millisecond
const double kRounding = 3 / (8 * std::log(2.0)) / 12;  // python/keel/nn/following.py derives it

}  // namespace

/// The two modules, as far as following needs them.
struct Following::Parts {
  struct Axis {
    std::int64_t kernel, stride, dilation;
  };

  std::shared_ptr<torch::nn::Module> map, norm;
  const Tensor *weight = nullptr, *bias = nullptr;
  std::int64_t map_groups = 1;
  std::vector<Axis> axes;
  std::vector<std::int64_t> padding;  ///< as at::pad takes it: the last axis first
  const char* padding_mode = kZeros;

  WhiteningImpl* whitening = nullptr;  // or a BatchNorm, by its buffers
  Tensor running_mean, running_var;
  std::function<std::optional<double>()> momentum;
  ProcessGroup processes;
  std::int64_t channels = 0, norm_groups = 0, blocks = 1;

  template <std::size_t D, typename Conv>
  void take_convolution(const Conv& conv) {
    const auto& o = conv.options;
    weight = &conv.weight, bias = &conv.bias, map_groups = o.groups();
    for (std::size_t i = 0; i < D; ++i) {
      axes.push_back({(*o.kernel_size())[i], (*o.stride())[i], (*o.dilation())[i]});
      std::int64_t start = 0, end = 0;
      const auto amount = [&](const auto& given) {
        using Given = std::decay_t<decltype(given)>;
        const std::int64_t both = axes[i].dilation * (axes[i].kernel - 1);
        if constexpr (std::is_same_v<Given, torch::enumtype::kSame>)
          start = both / 2, end = both - both / 2;
        else if constexpr (!std::is_same_v<Given, torch::enumtype::kValid>)
          start = end = (*given)[i];
      };
      visit(amount, o.padding());  // by its argument, c10's or std's
      padding.insert(padding.begin(), {start, end});
    }
    const auto mode = [&](const auto& given) {
      using Given = std::decay_t<decltype(given)>;
      if constexpr (std::is_same_v<Given, torch::enumtype::kReflect>) padding_mode = "reflect";
      if constexpr (std::is_same_v<Given, torch::enumtype::kReplicate>) padding_mode = "replicate";
      if constexpr (std::is_same_v<Given, torch::enumtype::kCircular>) padding_mode = "circular";
    };
    visit(mode, o.padding_mode());
    // Then the module pads by itself, and for kSame it takes the axes in the wrong order.
    struct Padded : Conv {
      using Conv::_reversed_padding_repeated_twice;
    };
    if (padding_mode != kZeros) padding = conv.*(&Padded::_reversed_padding_repeated_twice);
  }

  /// By its argument, a module's momentum.
  template <typename Layer>
  void take_momentum_of(Layer* layer) {
    if (layer == nullptr) return;
    momentum = [layer]() -> std::optional<double> {
      const auto given = layer->options.momentum();
      return given ? std::optional<double>(*given) : std::nullopt;
    };
  }

  template <typename Plain>
  Plain* exactly() const {
    return typeid(*map) == typeid(Plain) ? map->as<Plain>() : nullptr;
  }

  Parts(std::shared_ptr<torch::nn::Module> m, std::shared_ptr<torch::nn::Module> n,
        const FollowOptions& options)
      : map(std::move(m)), norm(std::move(n)), processes(options.process_group) {
    if (auto* one = exactly<torch::nn::Conv1dImpl>()) {
      take_convolution<1>(*one);
    } else if (auto* two = exactly<torch::nn::Conv2dImpl>()) {
      take_convolution<2>(*two);
    } else if (auto* three = exactly<torch::nn::Conv3dImpl>()) {
      take_convolution<3>(*three);
    } else {
      auto* linear = exactly<torch::nn::LinearImpl>();
      TORCH_CHECK_TYPE(linear != nullptr, kFollowing,
                       ": expected exactly Conv1d, Conv2d, Conv3d or Linear, got ", map->name());
      weight = &linear->weight, bias = &linear->bias;
    }
    const auto buffers = norm->named_buffers(/*recurse=*/false);
    const auto buffer = [&](const char* name) {
      const Tensor* found = buffers.find(name);
      return found != nullptr ? *found : Tensor();
    };
    running_mean = buffer("running_mean"), running_var = buffer("running_var");
    if ((whitening = norm->as<WhiteningImpl>()) != nullptr) {
      layer_map();  // reports a kind that is not known
      channels = whitening->options.num_features, norm_groups = *whitening->options.groups;
      momentum = [layer = whitening] { return layer->options.momentum; };
      processes = whitening->options.process_group;
    } else {
      if (auto* own = options.momentum_of ? options.momentum_of(*norm) : nullptr)
        momentum = [own] { return *own; };
      take_momentum_of(norm->as<torch::nn::BatchNorm1dImpl>());
      take_momentum_of(norm->as<torch::nn::BatchNorm2dImpl>());
      take_momentum_of(norm->as<torch::nn::BatchNorm3dImpl>());
      TORCH_CHECK_TYPE(momentum, kFollowing,
                       ": expected a whitening layer or BatchNorm1d, 2d or 3d, got ", norm->name());
      if (running_mean.defined()) channels = norm_groups = running_mean.numel();
    }
    TORCH_CHECK_VALUE(running_mean.defined(), kFollowing,
                      ": expected a norm with running statistics, got one without");
    TORCH_CHECK_VALUE(weight->size(0) == channels, kFollowing, ": expected a map to ", channels,
                      " channels, got one to ", weight->size(0));
    blocks = std::gcd(map_groups, norm_groups);
  }

  LayerMap layer_map() const {
    const double eps = whitening->options.eps;
    const RankPolicy& rank = *whitening->options.rank;
    if (whitening->as<ZcaWhiteningImpl>()) return Zca{eps, rank};
    if (whitening->as<PcaDenoisingImpl>()) return keel::PcaDenoising{eps, rank};
    TORCH_CHECK_TYPE(whitening->as<PcaWhiteningImpl>(), kFollowing,
                     ": expected ZcaWhitening, PcaDenoising or PcaWhitening, got ", norm->name());
    return keel::PcaWhitening{eps, rank};
  }

  /// A view of what the map multiplies: (N, output positions ..., C, kernel ...).
  Tensor patches(const Tensor& input) const {
    const auto rank = std::int64_t(axes.size());
    TORCH_CHECK_VALUE(input.dim() == rank + 2, kFollowing, ": expected ", rank + 2,
                      " dimensions, got input ", ops::shape_of(input));
    const bool pads = std::any_of(padding.begin(), padding.end(), [](auto p) { return p > 0; });
    Tensor result = pads ? at::pad(input, padding, padding_mode) : input;
    for (std::int64_t i = 0; i < rank; ++i) {
      const Axis& a = axes[std::size_t(i)];
      const std::int64_t spread = a.dilation * (a.kernel - 1) + 1;
      result = result.unfold(2 + i, spread, a.stride).slice(-1, 0, spread, a.dilation);
    }
    return result.movedim(1, 1 + rank);
  }

  /// The patches (count, K) of some positions, spread over samples and places; none is taken twice.
  Tensor sample(const Tensor& patches, std::int64_t count) const {
    const Tensor number = at::arange(count, patches.options().dtype(at::kLong));
    const auto sizes = patches.sizes().slice(1, axes.size());
    std::int64_t places = 1;
    for (const std::int64_t size : sizes) places *= size;
    // Neighbouring numbers are far apart: steps of about a golden ratio, coprime so that none repeats.
    std::int64_t step = std::max<std::int64_t>(1, std::int64_t(0.618 * double(places)));
    while (std::gcd(step, places) != 1) ++step;
    Tensor place = (number * step).remainder(std::max<std::int64_t>(places, 1));
    std::vector<Tensor> chosen(1 + axes.size());
    chosen[0] = at::div(number * patches.size(0), std::max<std::int64_t>(count, 1), "floor");
    for (std::size_t i = sizes.size(); i-- > 0;) {
      chosen[1 + i] = place.remainder(sizes[i]);
      place = at::div(place, sizes[i], "floor");
    }
    c10::List<c10::optional<Tensor>> indices;
    for (const Tensor& each : chosen) indices.push_back(each);
    return at::index(patches, indices).flatten(1);
  }

  /// The map's matrix in float64, once it has been rounded to `type`: (blocks, outputs, inputs).
  Tensor block_weight(at::ScalarType type) const {
    const std::int64_t within = map_groups / blocks, outputs = weight->size(0) / map_groups;
    const Tensor rows =
        weight->detach().to(type).to(at::kDouble).reshape({blocks, within, outputs, -1});
    const std::int64_t inputs = rows.size(-1);
    Tensor result = rows.new_zeros({blocks, within, outputs, within, inputs});
    for (std::int64_t i = 0; i < within; ++i)
      result.select(1, i).select(2, i).copy_(rows.select(1, i));
    return result.view({blocks, within * outputs, within * inputs});
  }

  /// How many of a batch's positions a look takes.
  std::int64_t samples(std::int64_t positions, std::int64_t images, double numbers,
                       const std::optional<double>& share) const {
    if (!share) return positions;
    const double own = *share * 3 * double(positions) * double(weight->numel());
    const double useful = double(kOfOneImage * images) * numbers;
    const double most = std::max(std::min(own, useful), kLittle) / numbers;
    return std::min(positions, std::max(kAtLeast, std::int64_t(most)));
  }

  /// The weight of a batch in the average, once there were enough batches.
  double least_weight(std::int64_t samples, const FollowOptions& options) const {
    const std::optional<double> own = momentum();
    if (!own) return 0;
    const double least = 1 - std::pow(1 - *own, double(options.every));
    if (!options.share) return least;
    const auto enough = double(kEnough * (channels / norm_groups + 1));
    // An average with weight w of its newest member is worth (2 - w) / w of them.
    return std::min(least, 2 * double(samples) / (enough + double(samples)));
  }
};

Following::Following(std::shared_ptr<torch::nn::Module> map,
                     std::shared_ptr<torch::nn::Module> norm, const FollowOptions& options)
    : parts_(std::make_shared<const Parts>(std::move(map), std::move(norm), options)),
      options_(options) {
  TORCH_CHECK_VALUE(options.every >= 1, kFollowing, ": expected every >= 1, got ", options.every);
  TORCH_CHECK_VALUE(!options.share || (*options.share > 0 && std::isfinite(*options.share)),
                    kFollowing, ": expected share > 0, got ", options.share.value_or(0));
  const Tensor& weight = *parts_->weight;
  const std::int64_t blocks = parts_->blocks,
                     numbers = weight.numel() / weight.size(0) * parts_->map_groups / blocks;
  const auto like = weight.options()
                        .dtype(weight.scalar_type() == at::kDouble ? at::kDouble : at::kFloat)
                        .requires_grad(false);
  input_mean = torch::zeros({blocks, numbers}, like);
  input_covariance = torch::zeros({blocks, numbers, numbers}, like);
  looks = torch::zeros({}, like.dtype(at::kLong));
}

void Following::observe(const Tensor& input) {
  if (steps_++ % options_.every == 0) look(input);
}

void Following::look(const Tensor& input) {
  const Parts& p = *parts_;
  if (!p.norm->is_training() || p.momentum() == 0.0) return;
  const torch::NoGradGuard no_grad;
  const ops::WithoutAutocast no_autocast;
  const Tensor patches = p.patches(input);
  std::int64_t positions = 1;
  for (std::size_t i = 0; i <= p.axes.size(); ++i) positions *= patches.size(std::int64_t(i));
  const std::int64_t samples =
      p.samples(positions, input.size(0), double(input_covariance.numel()), options_.share);
  if (samples < 2 && p.processes.size() == 1) return;
  Tensor columns = p.sample(patches, samples)
                       .to(input_mean.scalar_type())
                       .view({samples, p.blocks, input_mean.size(1)})
                       .transpose(0, 1);
  const Tensor count = torch::full({1}, samples, input_mean.options());
  Tensor sums = torch::cat({columns.sum(1).flatten(), count, torch::full_like(count, positions)});
  p.processes.sum(sums);
  const std::int64_t numbers = input_mean.numel();
  const Tensor n = sums[numbers], all = sums[numbers + 1];
  const Tensor mean = sums.narrow(0, 0, numbers).view_as(input_mean) / n;
  columns = columns - mean.unsqueeze(1);
  // Unbiased, as running_var of a BatchNorm. Whitening layers have the batch's own, which is smaller.
  const Tensor scale = p.whitening != nullptr ? (all - 1) / all / (n - 1) : (n - 1).reciprocal();
  Tensor size = columns.norm() * scale;  // neither finite nor below infinity if n is 1
  p.processes.sum(size);
  const Tensor finite = size < std::numeric_limits<double>::infinity();
  const double least =
      p.least_weight(std::min(samples, kOfOneImage * input.size(0)) * p.processes.size(), options_);
  const Tensor weight = (looks.to(mean.scalar_type()) + 1).reciprocal().clamp_min(least) * finite;
  columns = (columns * (weight * scale).sqrt()).nan_to_num_(0, 0, 0);
  input_mean.lerp_(mean.nan_to_num(0, 0, 0), weight);
  input_covariance.mul_(1 - weight);
  if (p.processes.size() > 1) {
    Tensor covariance = columns.mT().matmul(columns);
    p.processes.sum(covariance);
    input_covariance.add_(covariance);
  } else {
    input_covariance.baddbmm_(columns.mT(), columns);
  }
  looks.add_(finite);
}

void Following::refresh(at::optional<at::ScalarType> outputs) const {
  const Parts& p = *parts_;
  const torch::NoGradGuard no_grad;
  const bool halves = outputs == at::kHalf || outputs == at::kBFloat16;
  const at::ScalarType type = halves ? *outputs : p.weight->scalar_type();
  const Tensor weight = p.block_weight(type);
  const Tensor seen =
      torch::where(looks > 0, torch::zeros({}, weight.options()),
                   torch::full({}, std::numeric_limits<double>::quiet_NaN(), weight.options()));
  Tensor mean = weight.matmul(input_mean.to(at::kDouble).unsqueeze(-1)).flatten() + seen;
  if (p.bias->defined()) mean = mean + p.bias->detach().to(type).to(at::kDouble);
  const std::vector<std::int64_t> shape{p.blocks, p.norm_groups / p.blocks,
                                        p.channels / p.norm_groups, weight.size(-1)};
  const Tensor product = weight.matmul(input_covariance.to(at::kDouble)).view(shape);
  Tensor covariance = product.matmul(weight.view(shape).mT()).flatten(0, 1);
  covariance = (covariance + covariance.mT()) / 2 + seen;
  if (halves) {
    const double unit = std::exp2(type == at::kHalf ? -10 : -7);
    Tensor variance = covariance.diagonal(0, -2, -1);
    variance += unit * unit * kRounding * (variance + mean.view_as(variance).square());
  }
  if (p.whitening == nullptr) {
    const Tensor variance = covariance.flatten();
    const Tensor finite = mean.isfinite().all() & variance.isfinite().all();
    for (const auto& [running, now] : {std::pair(p.running_mean, mean), {p.running_var, variance}})
      running.copy_(torch::where(finite, now, running.to(at::kDouble)));
    return;
  }
  WhiteningImpl& norm = *p.whitening;
  const Tensor matrix = std::get<0>(
      ops::layer_matrix(covariance, to_string(p.layer_map()), to_string(norm.options.rule)));
  ops::running_average(norm.running_mean, norm.running_matrix,
                       ops::if_defined(norm.running_variance),
                       torch::zeros_like(norm.num_batches_tracked), mean, covariance, matrix,
                       /*momentum=*/1.0, norm.options.eps);
}

}  // namespace keel::nn
