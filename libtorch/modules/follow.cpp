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

namespace keel::nn {

using torch::Tensor;

namespace {

constexpr const char* kFollowing = "keel::nn::Following";
constexpr std::int64_t kEnough = 1024;  // positions for each of d + 1: an error of S of 1/64
constexpr std::int64_t kOfOneImage = 16;
constexpr double kLittle = 1 << 24;       // multiplications that any look may take: a millisecond
constexpr std::int64_t kWorthAPass = 64;  // positions, for a pass over the covariance

}  // namespace

/// The two modules, as far as following needs them.
struct Following::Parts {
  enum class Padding { zeros, reflect, replicate, circular };
  struct Axis {
    std::int64_t kernel, stride, dilation, start, end;
  };

  std::shared_ptr<torch::nn::Module> map, norm;
  const Tensor *weight = nullptr, *bias = nullptr;
  std::int64_t map_groups = 1;
  std::vector<Axis> axes;
  Padding padding = Padding::zeros;

  WhiteningImpl* whitening = nullptr;  // or a BatchNorm, by its members
  Tensor *running_mean = nullptr, *running_var = nullptr;
  std::function<std::optional<double>()> momentum;
  std::int64_t channels = 0, norm_groups = 0, blocks = 1;

  template <std::size_t D, typename Conv>
  void take_convolution(const Conv& conv) {
    const auto& o = conv.options;
    weight = &conv.weight, bias = &conv.bias, map_groups = o.groups();
    for (std::size_t i = 0; i < D; ++i) {
      Axis axis{(*o.kernel_size())[i], (*o.stride())[i], (*o.dilation())[i], 0, 0};
      const auto amount = [&](const auto& given) {
        using Given = std::decay_t<decltype(given)>;
        const std::int64_t both = axis.dilation * (axis.kernel - 1);
        if constexpr (std::is_same_v<Given, torch::enumtype::kSame>)
          axis.start = both / 2, axis.end = both - both / 2;
        else if constexpr (!std::is_same_v<Given, torch::enumtype::kValid>)
          axis.start = axis.end = (*given)[i];
      };
      visit(amount, o.padding());  // by its argument, c10's or std's
      axes.push_back(axis);
    }
    const auto mode = [&](const auto& given) {
      using Given = std::decay_t<decltype(given)>;
      if constexpr (std::is_same_v<Given, torch::enumtype::kReflect>) padding = Padding::reflect;
      if constexpr (std::is_same_v<Given, torch::enumtype::kReplicate>)
        padding = Padding::replicate;
      if constexpr (std::is_same_v<Given, torch::enumtype::kCircular>) padding = Padding::circular;
    };
    visit(mode, o.padding_mode());
  }

  template <typename BatchNorm>
  bool take_batch_norm() {
    auto* found = norm->as<BatchNorm>();
    if (found == nullptr) return false;
    running_mean = &found->running_mean, running_var = &found->running_var;
    channels = norm_groups = found->options.num_features();
    momentum = [found]() -> std::optional<double> {
      const auto given = found->options.momentum();
      return given ? std::optional<double>(*given) : std::nullopt;
    };
    return true;
  }

  template <typename Plain>
  Plain* exactly() const {
    return typeid(*map) == typeid(Plain) ? map->as<Plain>() : nullptr;
  }

  Parts(std::shared_ptr<torch::nn::Module> m, std::shared_ptr<torch::nn::Module> n)
      : map(std::move(m)), norm(std::move(n)) {
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
    if ((whitening = norm->as<WhiteningImpl>()) != nullptr) {
      layer_map();  // reports a kind that is not known
      running_mean = &whitening->running_mean;
      channels = whitening->options.num_features, norm_groups = *whitening->options.groups;
      momentum = [layer = whitening] { return layer->options.momentum; };
    } else {
      TORCH_CHECK_TYPE(take_batch_norm<torch::nn::BatchNorm1dImpl>() ||
                           take_batch_norm<torch::nn::BatchNorm2dImpl>() ||
                           take_batch_norm<torch::nn::BatchNorm3dImpl>(),
                       kFollowing, ": expected a whitening layer or BatchNorm1d, 2d or 3d, got ",
                       norm->name());
    }
    TORCH_CHECK_VALUE(running_mean->defined(), kFollowing,
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

  ProcessGroup processes() const {
    return whitening != nullptr ? whitening->options.process_group : ProcessGroup();
  }

  /// The sizes of the output beside samples and channels.
  std::vector<std::int64_t> positions_of(const Tensor& input) const {
    TORCH_CHECK_VALUE(input.dim() == std::int64_t(axes.size()) + 2, kFollowing, ": expected ",
                      axes.size() + 2, " dimensions, got input ", ops::shape_of(input));
    std::vector<std::int64_t> sizes;
    for (std::size_t i = 0; i < axes.size(); ++i) {
      const Axis& a = axes[i];
      const std::int64_t padded = input.size(std::int64_t(i) + 2) + a.start + a.end;
      sizes.push_back((padded - a.dilation * (a.kernel - 1) - 1) / a.stride + 1);
    }
    return sizes;
  }

  /// The patches (count, K) of output positions, spread over samples and places; none is taken twice.
  Tensor sample(const Tensor& input, const std::vector<std::int64_t>& sizes, std::int64_t count,
                const Tensor& turn) const {
    const auto whole = input.options().dtype(at::kLong);
    const Tensor number = at::arange(count, whole);
    const Tensor chosen =
        at::div(number * input.size(0), std::max<std::int64_t>(count, 1), "floor");
    if (axes.empty()) return input.index({chosen});
    const auto rank = std::int64_t(axes.size());
    std::int64_t positions = 1;
    for (const std::int64_t size : sizes) positions *= size;
    // Neighbouring numbers are far apart: steps of about a golden ratio, coprime so that none repeats.
    std::int64_t step = std::max<std::int64_t>(1, std::int64_t(0.618 * double(positions)));
    while (std::gcd(step, positions) != 1) ++step;
    Tensor place = ((number + turn * count) * step).remainder(positions), inside;
    std::vector<std::int64_t> ones(std::size_t(rank) + 1, 1);
    ones[0] = count;
    c10::List<c10::optional<Tensor>> indices;
    std::vector<Tensor> at_axis(axes.size());
    for (std::int64_t i = rank - 1; i >= 0; --i) {
      const Axis& a = axes[std::size_t(i)];
      const std::int64_t size = input.size(i + 2), out = sizes[std::size_t(i)];
      Tensor at = place.remainder(out).unsqueeze(1) * a.stride +
                  at::arange(a.kernel, whole) * a.dilation - a.start;
      place = at::div(place, out, "floor");
      auto shape = ones;
      shape[std::size_t(i) + 1] = a.kernel;
      if (padding == Padding::circular) at = at.remainder(size);
      if (padding == Padding::reflect) at = size - 1 - (size - 1 - at.abs()).abs();
      if (padding == Padding::zeros && (a.start > 0 || a.end > 0)) {
        const Tensor here = ((at >= 0) & (at < size)).view(shape);
        inside = inside.defined() ? inside & here : here;
      }
      at_axis[std::size_t(i)] = at.clamp(0, size - 1).view(shape);
    }
    indices.push_back(chosen.view(ones));
    for (const Tensor& each : at_axis) indices.push_back(each);
    Tensor taken = at::index(input.movedim(1, -1), indices);
    if (inside.defined()) taken = taken.masked_fill(~inside.unsqueeze(-1), 0);
    return taken.flatten(1, -2).transpose(1, 2).flatten(1);
  }

  /// The map's matrix in float64: (blocks, outputs, inputs).
  Tensor block_weight() const {
    const std::int64_t within = map_groups / blocks, outputs = weight->size(0) / map_groups;
    const Tensor rows = weight->detach().to(at::kDouble).reshape({blocks, within, outputs, -1});
    const std::int64_t inputs = rows.size(-1);
    Tensor result = rows.new_zeros({blocks, within, outputs, within, inputs});
    for (std::int64_t i = 0; i < within; ++i)
      result.select(1, i).select(2, i).copy_(rows.select(1, i));
    return result.view({blocks, within * outputs, within * inputs});
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
    : parts_(std::make_shared<const Parts>(std::move(map), std::move(norm))), options_(options) {
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
  const Parts& p = *parts_;
  if (!p.norm->is_training() || p.momentum() == 0.0) return;
  const auto sizes = p.positions_of(input);
  std::int64_t total = input.size(0), samples = total;
  for (const std::int64_t size : sizes) samples = total *= size;
  if (options_.share) {
    const double own = *options_.share * 3 * double(total) * double(p.weight->numel());
    const double most = std::max(own, kLittle) / double(input_covariance.numel());
    samples = std::min<std::int64_t>(total, std::int64_t(std::max(1.0, std::min(most, 1e18))));
  }
  // A look passes over the whole covariance, so few positions of each batch are taken as more of fewer batches.
  const std::int64_t rounds =
      samples < total ? std::max<std::int64_t>(1, kWorthAPass / samples) : 1;
  if (steps_++ % (options_.every * rounds) != 0) return;
  samples = std::min(total, samples * rounds);
  const ProcessGroup processes = p.processes();
  if (samples < 2 && processes.size() == 1) return;

  const torch::NoGradGuard no_grad;
  Tensor columns = p.sample(input, sizes, samples, looks)
                       .to(input_mean.scalar_type())
                       .view({samples, p.blocks, -1})
                       .transpose(0, 1);
  const Tensor count = torch::full({1}, samples, input_mean.options());
  Tensor sums = torch::cat({columns.sum(1).flatten(), count, torch::full_like(count, total)});
  processes.sum(sums);
  const std::int64_t numbers = input_mean.numel();
  const Tensor n = sums.narrow(0, numbers, 1), positions = sums.narrow(0, numbers + 1, 1);
  const Tensor mean = sums.narrow(0, 0, numbers).view_as(input_mean) / n;
  columns = columns - mean.unsqueeze(1);
  Tensor squares = columns.square().sum(1);
  processes.sum(squares);
  const Tensor finite = (mean + squares).isfinite().all() & (n > 1);
  const double least =
      p.least_weight(std::min(samples, kOfOneImage * input.size(0)) * processes.size(), options_);
  Tensor weight = (looks + 1).to(mean.scalar_type()).reciprocal().clamp_min(least);
  weight = torch::where(finite, weight, torch::zeros_like(weight));
  // Unbiased, as running_var of a BatchNorm. Whitening layers have the batch's own, which is smaller.
  Tensor scale = weight / (n - 1);
  if (p.whitening != nullptr) scale = scale * ((positions - 1) / positions);
  columns = torch::where(finite, columns * scale.sqrt(), torch::zeros_like(columns));
  input_mean.lerp_(torch::where(finite, mean, input_mean), weight);
  input_covariance.mul_(1 - weight);
  if (processes.size() > 1) {
    Tensor covariance = columns.mT().matmul(columns);
    processes.sum(covariance);
    input_covariance.add_(covariance);
  } else {
    input_covariance.baddbmm_(columns.mT(), columns);
  }
  looks.add_(finite.squeeze(0).to(at::kLong));
}

void Following::refresh() const {
  const Parts& p = *parts_;
  const torch::NoGradGuard no_grad;
  const Tensor weight = p.block_weight();
  const Tensor seen =
      torch::where(looks > 0, torch::zeros({}, weight.options()),
                   torch::full({}, std::numeric_limits<double>::quiet_NaN(), weight.options()));
  Tensor mean = weight.matmul(input_mean.to(at::kDouble).unsqueeze(-1)).flatten() + seen;
  if (p.bias->defined()) mean = mean + p.bias->detach().to(at::kDouble);
  const std::vector<std::int64_t> shape{p.blocks, p.norm_groups / p.blocks,
                                        p.channels / p.norm_groups, weight.size(-1)};
  const Tensor product = weight.matmul(input_covariance.to(at::kDouble)).view(shape);
  Tensor covariance = product.matmul(weight.view(shape).mT()).flatten(0, 1);
  covariance = (covariance + covariance.mT()) / 2 + seen;
  if (p.whitening == nullptr) {
    const Tensor variance = covariance.flatten();
    const Tensor finite = mean.isfinite().all() & variance.isfinite().all();
    p.running_mean->copy_(torch::where(finite, mean, p.running_mean->to(at::kDouble)));
    p.running_var->copy_(torch::where(finite, variance, p.running_var->to(at::kDouble)));
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
