#include "lab/data/data_set.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "lab/random.h"
#include "lab/require.h"

namespace keel::lab {

const std::vector<std::string>& data_sources() {
  static const std::vector<std::string> names{"synthetic", "cifar10", "cifar100", "packed"};
  return names;
}

void validate(const DataOptions& options) {
  require(options.size == 0 || options.size >= 4, "expected size from 4 to 1024, or 0, got {}",
          options.size);
  if (options.source == "synthetic")
    require(options.size > 0, "expected size >= 4 of synthetic images, got 0");
  else
    require(!options.path.empty(), "expected path, which source {} needs, got none",
            options.source);
}

namespace {

DataSet loaded(const DataOptions& options) {
  if (options.source == "synthetic") return load_synthetic(options);
  if (options.source == "packed") return load_packed(options);
  return load_cifar(options);
}

/// Classes must have different names, because other data's classes are matched by name.
void require_different(const DataOptions& options, const std::vector<std::string>& classes) {
  std::map<std::string, std::size_t> places;
  for (std::size_t i = 0; i < classes.size(); ++i) {
    const auto [first, is_new] = places.emplace(classes[i], i);
    require(is_new, "{}: expected classes of different names, got '{}' for classes {} and {}",
            options.path.string(), classes[i], first->second, i);
  }
}

}  // namespace

DataSet load(const DataOptions& options) {
  validate(options);
  try {
    DataSet data = loaded(options);
    require_different(options, data.classes);
    return data;
  } catch (const std::filesystem::filesystem_error& error) {
    throw Error(error.path1().string() + ": " + error.code().message());
  }
}

// What all sources do with their images.

Images limited(const Images& images, std::int64_t limit, std::uint64_t seed) {
  if (limit == 0 || limit >= images.count()) return images;
  const auto* const labels = images.labels.data_ptr<std::int64_t>();
  std::vector<std::int64_t> chosen(std::size_t(images.count()));
  std::iota(chosen.begin(), chosen.end(), 0);
  const auto hash = [&](std::int64_t i) { return hashed(seed, std::uint64_t(i)); };
  std::ranges::sort(chosen, {}, hash);
  // Rank each sample within its class, then take all first ones, all second ones, and so on.
  std::vector<std::int64_t> rank(chosen.size());
  std::map<std::int64_t, std::int64_t> seen;
  for (const std::int64_t i : chosen) rank[std::size_t(i)] = seen[labels[i]]++;
  std::ranges::stable_sort(chosen, {}, [&](std::int64_t i) { return rank[std::size_t(i)]; });
  chosen.resize(std::size_t(limit));
  std::ranges::sort(chosen);
  const auto places = torch::tensor(chosen);
  return {images.pixels.index_select(0, places), images.labels.index_select(0, places)};
}

Images resized(const Images& images, std::int64_t size) {
  const std::int64_t count = images.count(), height = images.pixels.size(2),
                     width = images.pixels.size(3), side = std::min(height, width);
  if (size == 0 || (height == size && width == size)) return images;
  const torch::Tensor squares =
      images.pixels.narrow(2, (height - side) / 2, side).narrow(3, (width - side) / 2, side);
  Images result{torch::empty({count, 3, size, size}, torch::kUInt8), images.labels};
  constexpr std::int64_t kAtOnce = 64;  // as floats they take four times the memory
  for (std::int64_t first = 0; first < count; first += kAtOnce) {
    const std::int64_t some = std::min(kAtOnce, count - first);
    const auto wide = squares.narrow(0, first, some).to(torch::kFloat).contiguous();
    const auto scaled = at::_upsample_bilinear2d_aa(wide, {size, size}, /*align_corners=*/false);
    result.pixels.narrow(0, first, some).copy_(scaled.round_().clamp_(0, 255));
  }
  return result;
}

void measure(DataSet& data) {
  const auto& pixels = data.train.pixels;
  const std::int64_t area = pixels.size(2) * pixels.size(3), count = pixels.size(0);
  const auto* value = pixels.data_ptr<std::uint8_t>();
  std::array<std::array<std::int64_t, 256>, 3> histogram{};
  for (std::int64_t i = 0; i < count; ++i)
    for (auto& channel : histogram)
      for (std::int64_t k = 0; k < area; ++k) ++channel[*value++];
  for (std::size_t c = 0; c < 3; ++c) {
    const double total = double(count * area);
    double sum = 0, spread = 0;
    for (std::size_t v = 0; v < 256; ++v) sum += double(v) * double(histogram[c][v]);
    const double mean = sum / total;
    for (std::size_t v = 0; v < 256; ++v)
      spread += (double(v) - mean) * (double(v) - mean) * double(histogram[c][v]);
    data.mean[c] = mean / 255;
    // A constant channel is divided by one grey level instead of zero.
    data.deviation[c] = std::max(std::sqrt(spread / total), 1.0) / 255;
  }
}

}  // namespace keel::lab
