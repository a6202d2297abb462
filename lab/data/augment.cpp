#include "lab/data/augment.h"

#include "lab/data/fused_augment.h"
#include "lab/random.h"

namespace keel::lab {
namespace {

using torch::Tensor;

constexpr std::int64_t kLow32 = 0xffffffff;

/// A 32-bit hash in int64 tensors, because unsigned types have no arithmetic there. The factor is below 2^31, so no
/// product overflows.
Tensor mixed(Tensor x) {
  for (int round = 0; round < 2; ++round)
    x = x.bitwise_xor(x.bitwise_right_shift(16)).mul_(0x45d9f3b).bitwise_and_(kLow32);
  return x.bitwise_xor(x.bitwise_right_shift(16));
}

/// Scalars are passed to kernels as arguments. A tensor of constants would be copied from the host, which a CUDA
/// graph cannot capture. One multiplication and one addition round the same on every device.
void normalise_in_place(Tensor& images, const AugmentOptions& options) {
  for (std::int64_t c = 0; c < 3; ++c) {
    const double deviation = options.deviation[std::size_t(c)];
    images.select(1, c).mul_(1 / (255 * deviation)).add_(-options.mean[std::size_t(c)] / deviation);
  }
}

Tensor floats(const Tensor& pixels, const AugmentOptions& options) {
  return pixels.to(
      torch::kFloat, /*non_blocking=*/false, /*copy=*/true,
      options.channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous);
}

void require_pixels(const char* operation, const Tensor& pixels) {
  TORCH_CHECK(pixels.dim() == 4 && pixels.size(1) == 3 && pixels.scalar_type() == torch::kUInt8,
              operation, ": expected uint8 (N, 3, H, W), got ", pixels.scalar_type(), " ",
              pixels.sizes());
}

}  // namespace

AugmentOptions augment_options(const DataSet& data, std::uint64_t seed) {
  AugmentOptions options;
  options.seed = seed;
  options.mean = data.mean;
  options.deviation = data.deviation;
  return options;
}

Tensor augment(const Tensor& pixels, const Tensor& indices, const Tensor& epoch,
               const AugmentOptions& options) {
  require_pixels("keel::lab::augment", pixels);
  TORCH_CHECK(indices.dim() == 1 && indices.scalar_type() == torch::kLong,
              "keel::lab::augment: expected int64 indices (B), got ", indices.scalar_type(), " ",
              indices.sizes());
  TORCH_CHECK(epoch.dim() == 0 && epoch.scalar_type() == torch::kLong,
              "keel::lab::augment: expected an int64 scalar tensor as epoch, got ",
              epoch.scalar_type(), " ", epoch.sizes());
  TORCH_CHECK(options.padding >= 0 && options.padding < 4096,
              "keel::lab::augment: expected padding from 0 to 4095, got ", options.padding);
  const torch::NoGradGuard no_grad;
  const std::int64_t height = pixels.size(2), width = pixels.size(3), padding = options.padding;
  const std::int64_t places = 2 * padding + 1;

  // Odd factors keep (epoch, index) distinct. Both have 31 bits, so nothing overflows.
  const std::int64_t key = std::int64_t(hashed(options.seed, 0) & 0x7fffffff);
  if (options.fused && epoch.device() == pixels.device() && fuses_augment(pixels, indices))
    return fused_augment(pixels, indices, epoch, key, options);
  const Tensor of_epoch = epoch.bitwise_and(0x7fffffff).mul_(0x6c8e9cf5);
  const Tensor hash = mixed(indices.bitwise_and(0x7fffffff)
                                .mul_(0x2545f491)
                                .bitwise_xor(of_epoch)
                                .bitwise_xor_(key)
                                .bitwise_and_(kLow32))
                          .view({-1, 1, 1, 1});

  // 15 bits for each offset, the top bit for the flip.
  const auto offset = [&](std::int64_t shift) {
    return hash.bitwise_right_shift(shift)
        .bitwise_and_(0x7fff)
        .mul_(places)
        .bitwise_right_shift(15)
        .sub_(padding);
  };
  const auto integers = indices.options();
  const Tensor rows = torch::arange(height, integers).view({1, 1, -1, 1}) + offset(0);
  Tensor columns = torch::arange(width, integers).view({1, 1, 1, -1});
  if (options.flip) {
    const Tensor flipped = hash.bitwise_right_shift(31);
    columns = columns * flipped.mul(-2).add_(1) + flipped * (width - 1);
  }
  columns = columns + offset(15);

  const Tensor row = rows.clamp(0, height - 1), column = columns.clamp(0, width - 1);
  const Tensor inside = rows.eq(row).logical_and(columns.eq(column));
  const Tensor channel = torch::arange(3, integers).view({1, 3, 1, 1});
  const Tensor taken = pixels.index({indices.view({-1, 1, 1, 1}), channel, row, column});
  Tensor images = floats(taken * inside, options);
  normalise_in_place(images, options);
  return images;
}

Tensor normalise(const Tensor& pixels, const AugmentOptions& options) {
  require_pixels("keel::lab::normalise", pixels);
  const torch::NoGradGuard no_grad;
  Tensor images = floats(pixels, options);
  normalise_in_place(images, options);
  return images;
}

}  // namespace keel::lab
