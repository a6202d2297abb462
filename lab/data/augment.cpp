#include "lab/data/augment.h"

#include "lab/random.h"

namespace keel::lab {
namespace {

using torch::Tensor;

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

Tensor random_crops(const AugmentOptions& options, std::int64_t epoch, std::int64_t count,
                    std::int64_t width) {
  TORCH_CHECK(options.padding >= 0 && options.padding < 4096,
              "keel::lab::random_crops: expected padding from 0 to 4095, got ", options.padding);
  constexpr std::uint64_t kLow31 = 0x7fffffff;
  const std::uint64_t key = hashed(options.seed, 0) & kLow31,
                      of_epoch = (std::uint64_t(epoch) & kLow31) * 0x6c8e9cf5;
  const std::int64_t places = 2 * options.padding + 1;
  const Tensor crops = torch::empty({count, 3}, torch::kLong);
  auto* crop = crops.data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < count; ++i, crop += 3) {
    // Odd factors keep (epoch, index) distinct.
    auto hash = std::uint32_t((std::uint64_t(i) & kLow31) * 0x2545f491 ^ of_epoch ^ key);
    for (int round = 0; round < 2; ++round) hash = (hash ^ hash >> 16) * 0x45d9f3b;
    hash ^= hash >> 16;
    // 15 bits for each offset, the top bit for the flip.
    const auto offset = [&](int bits) {
      return (std::int64_t(hash >> bits & 0x7fff) * places >> 15) - options.padding;
    };
    const bool flipped = options.flip && hash >> 31 != 0;
    crop[0] = offset(0);
    crop[1] = flipped ? -1 : 1;
    crop[2] = (flipped ? width - 1 : 0) + offset(15);
  }
  return crops;
}

Tensor augment(const Tensor& pixels, const Tensor& indices, const Tensor& crops,
               const AugmentOptions& options) {
  require_pixels("keel::lab::augment", pixels);
  TORCH_CHECK(indices.dim() == 1 && indices.scalar_type() == torch::kLong,
              "keel::lab::augment: expected int64 indices (B), got ", indices.scalar_type(), " ",
              indices.sizes());
  TORCH_CHECK(crops.dim() == 2 && crops.size(0) == pixels.size(0) && crops.size(1) == 3 &&
                  crops.scalar_type() == torch::kLong,
              "keel::lab::augment: expected int64 crops (", pixels.size(0), ", 3), got ",
              crops.scalar_type(), " ", crops.sizes());
  const torch::NoGradGuard no_grad;
  const std::int64_t height = pixels.size(2), width = pixels.size(3);
  const Tensor chosen = crops.index_select(0, indices);
  const auto part = [&](std::int64_t k) { return chosen.select(1, k).view({-1, 1, 1, 1}); };
  const auto integers = indices.options();
  const Tensor rows = torch::arange(height, integers).view({1, 1, -1, 1}) + part(0);
  const Tensor columns = torch::arange(width, integers) * part(1) + part(2);
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
