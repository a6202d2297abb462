// Common processing for images of all sources.

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lab/data/image.h"
#include "lab/data/parallel.h"
#include "lab/data/sources.h"
#include "lab/random.h"

namespace keel::lab {

std::vector<std::int64_t> limited(const std::vector<std::int64_t>& labels, std::int64_t limit,
                                  std::uint64_t seed) {
  std::vector<std::int64_t> chosen(labels.size());
  std::iota(chosen.begin(), chosen.end(), 0);
  if (limit == 0 || limit >= std::int64_t(labels.size())) return chosen;
  const auto lot = [&](std::int64_t i) { return hashed(seed, std::uint64_t(i)); };
  std::sort(chosen.begin(), chosen.end(),
            [&](std::int64_t a, std::int64_t b) { return lot(a) < lot(b); });
  // Rank each sample within its class, then take all first ones, all second ones, and so on.
  std::vector<std::int64_t> turns(labels.size());
  std::vector<std::int64_t> seen(std::size_t(1 + *std::max_element(labels.begin(), labels.end())));
  for (std::int64_t i : chosen) turns[std::size_t(i)] = seen[std::size_t(labels[std::size_t(i)])]++;
  std::stable_sort(chosen.begin(), chosen.end(), [&](std::int64_t a, std::int64_t b) {
    return turns[std::size_t(a)] < turns[std::size_t(b)];
  });
  chosen.resize(std::size_t(limit));
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

Images limited(const Images& images, std::int64_t limit, std::uint64_t seed) {
  if (limit == 0 || limit >= images.count()) return images;
  const auto* first = images.labels.data_ptr<std::int64_t>();
  const auto chosen = torch::tensor(limited({first, first + images.count()}, limit, seed));
  return {images.pixels.index_select(0, chosen), images.labels.index_select(0, chosen)};
}

Images resized(const Images& images, std::int64_t size, const Progress& progress) {
  const std::int64_t height = images.pixels.size(2), width = images.pixels.size(3);
  if (size == 0 || (height == size && width == size)) return images;
  Images result{torch::empty({images.count(), 3, size, size}, torch::kUInt8), images.labels};
  const auto* from = images.pixels.data_ptr<std::uint8_t>();
  auto* to = result.pixels.data_ptr<std::uint8_t>();
  const auto scale = [&](std::int64_t i) {
    write_planes(squared(read_planes(from + i * 3 * height * width, height, width), size),
                 to + i * 3 * size * size);
  };
  in_parallel("scaling images", images.count(), scale, progress);
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
