#include "lab/data/augment.h"

#include <gtest/gtest.h>

#include "lab/train/graph.h"

namespace keel::lab {
namespace {

using torch::Tensor;

Tensor random_pixels(std::int64_t count, std::int64_t height, std::int64_t width) {
  torch::manual_seed(1);
  return torch::randint(1, 256, {count, 3, height, width}, torch::kUInt8);
}

/// With the crops of that epoch.
Tensor augmented(const Tensor& pixels, const Tensor& indices, std::int64_t epoch,
                 const AugmentOptions& options) {
  const Tensor crops = random_crops(options, epoch, pixels.size(0), pixels.size(3));
  return augment(pixels, indices, crops.to(pixels.device()), options);
}

/// Converts back to bytes, under the identity normalisation.
Tensor pixels_of(const Tensor& augmented) { return augmented.mul(255).round().to(torch::kUInt8); }

TEST(Augment, TakesThePixelsThatTheCropsName) {
  const std::int64_t height = 7, width = 10;
  const Tensor pixels = random_pixels(300, height, width), indices = torch::arange(300);
  for (const std::int64_t number : {0, 1, 77})
    for (const std::int64_t padding : {0, 1, 4})
      for (const bool flip : {false, true}) {
        const AugmentOptions options{.seed = 9, .padding = padding, .flip = flip};
        const Tensor result = pixels_of(augmented(pixels, indices, number, options));
        const Tensor crops = random_crops(options, number, 300, width);
        Tensor expected = torch::zeros_like(result);
        const auto crop = crops.accessor<std::int64_t, 2>();
        const auto from = pixels.accessor<std::uint8_t, 4>();
        auto to = expected.accessor<std::uint8_t, 4>();
        for (std::int64_t n = 0; n < 300; ++n) {
          EXPECT_TRUE(crop[n][1] == 1 || (flip && crop[n][1] == -1));
          for (std::int64_t y = 0; y < height; ++y)
            for (std::int64_t x = 0; x < width; ++x) {
              const std::int64_t row = y + crop[n][0], column = crop[n][1] * x + crop[n][2];
              if (row < 0 || row >= height || column < 0 || column >= width) continue;
              for (int c = 0; c < 3; ++c) to[n][c][y][x] = from[n][c][row][column];
            }
        }
        EXPECT_TRUE(result.equal(expected)) << number << " " << padding << " " << flip;
      }
}

// A resumed run goes on with the crops it had, whichever keel it began with.
TEST(Augment, CropsAreTheSameOnEveryMachineAndForEver) {
  const Tensor known =
      torch::tensor({{1, -1, 11}, {4, -1, 13}, {3, 1, 4}, {2, -1, 5}, {0, 1, -3}}, torch::kLong);
  EXPECT_TRUE(random_crops({.seed = 9}, 77, 5, 10).equal(known))
      << random_crops({.seed = 9}, 77, 5, 10);
}

TEST(Augment, OnAGpuGivesTheSameBits) {
  if (!has_cuda()) GTEST_SKIP() << "no CUDA device";
  const Tensor pixels = random_pixels(50, 9, 14);
  const Tensor indices = torch::randperm(50, torch::kLong).narrow(0, 0, 31);
  AugmentOptions options{.seed = 3, .mean = {0.49, 0.48, 0.44}, .deviation = {0.247, 0.243, 0.261}};
  for (const bool channels_last : {false, true}) {
    options.channels_last = channels_last;
    const Tensor here = augmented(pixels, indices, 4, options);
    EXPECT_TRUE(
        augmented(pixels.to(torch::kCUDA), indices.to(torch::kCUDA), 4, options).cpu().equal(here));
    EXPECT_TRUE(
        normalise(pixels.to(torch::kCUDA), options).cpu().equal(normalise(pixels, options)));
  }
}

TEST(Augment, DependsOnSeedEpochAndSampleAlone) {
  const Tensor pixels = random_pixels(64, 8, 8);
  const AugmentOptions options{.seed = 5};
  const Tensor all = augmented(pixels, torch::arange(64), 1, options);
  const Tensor order = torch::randperm(64, torch::kLong).narrow(0, 0, 20);
  EXPECT_TRUE(torch::equal(augmented(pixels, order, 1, options), all.index_select(0, order)));
  EXPECT_FALSE(torch::equal(augmented(pixels, torch::arange(64), 2, options), all));
  EXPECT_FALSE(torch::equal(augmented(pixels, torch::arange(64), 1, {.seed = 6}), all));
}

TEST(Augment, MovesAreUniformAndIndependent) {
  // Pixels encode their position, so the corner of the result shows the move.
  const std::int64_t count = 20'000, side = 16;
  Tensor pixels = torch::zeros({1, 3, side, side}, torch::kUInt8);
  pixels.select(1, 0).copy_(torch::arange(1, side + 1).view({-1, 1}).expand({side, side}));
  pixels.select(1, 1).copy_(torch::arange(1, side + 1).expand({side, side}));
  pixels = pixels.expand({count, 3, side, side});
  std::vector<Tensor> keys;
  for (std::int64_t number = 0; number < 3; ++number) {
    const Tensor result = pixels_of(augmented(pixels, torch::arange(count), number, {.seed = 9}));
    const Tensor middle = result.select(2, 8).select(2, 8).to(torch::kLong);
    const Tensor next = result.select(2, 8).select(2, 9).to(torch::kLong);
    const Tensor down = middle.select(1, 0) - 5, flipped = (next < middle).select(1, 1);
    // Column 8 of a flipped image is column 7 of the crop.
    const Tensor right = middle.select(1, 1) - torch::where(flipped, 4, 5);
    keys.push_back((down * 9 + right) * 2 + flipped.to(torch::kLong));
    const Tensor counts = torch::bincount(keys.back(), {}, 162).to(torch::kDouble);
    ASSERT_EQ(counts.numel(), 162);
    const double expected = double(count) / 162;
    const double chi = ((counts - expected).pow(2) / expected).sum().item<double>();
    EXPECT_LT(chi, 161 + 5 * std::sqrt(2 * 161.0)) << "epoch " << number;
  }
  // Neighbouring samples and epochs share a move only as often as chance allows.
  const auto agree = [&](const Tensor& a, const Tensor& b) {
    return (a == b).to(torch::kDouble).mean().item<double>() * 162;
  };
  EXPECT_NEAR(agree(keys[0], keys[1]), 1, 0.5);
  EXPECT_NEAR(agree(keys[1], keys[2]), 1, 0.5);
  EXPECT_NEAR(agree(keys[0].slice(0, 1), keys[0].slice(0, 0, -1)), 1, 0.5);
  EXPECT_NEAR(agree(keys[0].slice(0, 1), keys[1].slice(0, 0, -1)), 1, 0.5);
}

TEST(Augment, Normalises) {
  const Tensor pixels = random_pixels(4, 6, 5);
  const AugmentOptions options{
      .padding = 0, .flip = false, .mean = {0.5, 0.25, 0.1}, .deviation = {0.2, 0.3, 0.4}};
  const Tensor result = augmented(pixels, torch::arange(4), 0, options);
  EXPECT_EQ(result.scalar_type(), torch::kFloat);
  EXPECT_TRUE(torch::equal(result, normalise(pixels, options)));
  for (std::int64_t c = 0; c < 3; ++c) {
    const double mean = options.mean[std::size_t(c)], deviation = options.deviation[std::size_t(c)];
    const Tensor expected = (pixels.select(1, c).to(torch::kDouble) / 255 - mean) / deviation;
    EXPECT_LT((result.select(1, c) - expected).abs().max().item<double>(), 1e-6);
  }
}

TEST(Augment, PadsWithBlackBeforeNormalising) {
  const AugmentOptions options{.mean = {0.5, 0.5, 0.5}, .deviation = {0.25, 0.25, 0.25}};
  const Tensor pixels = torch::full({200, 3, 8, 8}, 255, torch::kUInt8);
  const Tensor result = augmented(pixels, torch::arange(200), 0, options);
  const Tensor black = result == -2, white = result == 2;
  EXPECT_TRUE(black.logical_or(white).all().item<bool>());
  EXPECT_TRUE(black.any().item<bool>());
}

TEST(Augment, KeepsTheMemoryFormatAsked) {
  const Tensor pixels = random_pixels(4, 8, 8);
  AugmentOptions options;
  const Tensor plain = augmented(pixels, torch::arange(4), 0, options);
  EXPECT_TRUE(plain.is_contiguous());
  options.channels_last = true;
  const Tensor last = augmented(pixels, torch::arange(4), 0, options);
  EXPECT_TRUE(last.is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_TRUE(torch::equal(plain, last));
  EXPECT_TRUE(normalise(pixels, options).is_contiguous(at::MemoryFormat::ChannelsLast));
}

TEST(Augment, RefusesOtherTensors) {
  const Tensor pixels = random_pixels(4, 8, 8), indices = torch::arange(4);
  const Tensor crops = random_crops({}, 0, 4, 8);
  EXPECT_THROW(augment(pixels.to(torch::kFloat), indices, crops, {}), c10::Error);
  EXPECT_THROW(augment(pixels, indices.to(torch::kInt), crops, {}), c10::Error);
  EXPECT_THROW(augment(pixels, indices, crops.slice(0, 1), {}), c10::Error);
  EXPECT_THROW(random_crops({.padding = -1}, 0, 4, 8), c10::Error);
  EXPECT_THROW(normalise(pixels[0], {}), c10::Error);
}

}  // namespace
}  // namespace keel::lab
