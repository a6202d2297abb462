#include "lab/data/image.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "lab/data/load_error.h"

namespace keel::lab {
namespace {

constexpr std::uint64_t kLongestSide = 1 << 16, kMostPixels = 1 << 27, kLongestFile = 1 << 30;

/// The weights of the old pixels, starting at `first`, in one new pixel.
struct Taps {
  std::int64_t first;
  std::vector<float> weights;
};

std::vector<Taps> triangle_filter(std::int64_t from, std::int64_t to) {
  const double step = double(from) / double(to), reach = std::max(step, 1.0);
  std::vector<Taps> result;
  for (std::int64_t i = 0; i < to; ++i) {
    const double centre = (double(i) + 0.5) * step;
    const auto first = std::max<std::int64_t>(0, std::int64_t(centre - reach + 0.5));
    const auto end = std::min<std::int64_t>(from, std::int64_t(centre + reach + 0.5));
    std::vector<double> weights;
    double sum = 0;
    for (std::int64_t j = first; j < end; ++j) {
      weights.push_back(std::max(0.0, 1 - std::abs((double(j) + 0.5 - centre) / reach)));
      sum += weights.back();
    }
    Taps taps{first, {}};
    for (double weight : weights) taps.weights.push_back(float(weight / sum));
    result.push_back(std::move(taps));
  }
  return result;
}

}  // namespace

void require_sane_size(std::uint64_t height, std::uint64_t width) {
  require(height >= 1 && width >= 1 && height <= kLongestSide && width <= kLongestSide &&
              height * width <= kMostPixels,
          "expected an image of at most " + std::to_string(kMostPixels) + " pixels, got " +
              std::to_string(height) + " x " + std::to_string(width));
}

Image decode(std::span<const std::uint8_t> bytes) {
  static constexpr std::uint8_t kJpeg[] = {0xff, 0xd8, 0xff};
  static constexpr std::uint8_t kPng[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
  const auto begins_with = [&](std::span<const std::uint8_t> magic) {
    return bytes.size() >= magic.size() &&
           std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
  };
  if (begins_with(kJpeg)) return decode_jpeg(bytes);
  if (begins_with(kPng)) return decode_png(bytes);
  throw Error(bytes.empty() ? "expected a JPEG or PNG image, got an empty file"
                            : "expected a JPEG or PNG image, but its first bytes are neither's");
}

Image read_image(const std::filesystem::path& file) {
  const std::string bytes = content_of(file, kLongestFile);
  try {
    return decode({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
  } catch (const Error& error) {
    fail(file, error.what());
  }
}

Image squared(const Image& image, std::int64_t size) {
  if (image.height == size && image.width == size) return image;
  const std::int64_t side = std::min(image.height, image.width);
  const std::int64_t top = (image.height - side) / 2, left = (image.width - side) / 2;
  const std::vector<Taps> filter = triangle_filter(side, size);

  std::vector<float> rows(std::size_t(side * size * 3));  // scaled along x
  for (std::int64_t y = 0; y < side; ++y) {
    const std::uint8_t* line = image.pixels.data() + ((top + y) * image.width + left) * 3;
    for (std::int64_t x = 0; x < size; ++x) {
      const Taps& taps = filter[std::size_t(x)];
      for (std::int64_t c = 0; c < 3; ++c) {
        float sum = 0;
        for (std::size_t k = 0; k < taps.weights.size(); ++k)
          sum += taps.weights[k] * float(line[(taps.first + std::int64_t(k)) * 3 + c]);
        rows[std::size_t((y * size + x) * 3 + c)] = sum;
      }
    }
  }
  Image result{size, size, std::vector<std::uint8_t>(std::size_t(size * size * 3))};
  std::vector<float> line(std::size_t(size * 3));
  for (std::int64_t y = 0; y < size; ++y) {
    const Taps& taps = filter[std::size_t(y)];
    std::fill(line.begin(), line.end(), 0.0f);
    for (std::size_t k = 0; k < taps.weights.size(); ++k) {
      const float* row = rows.data() + (taps.first + std::int64_t(k)) * size * 3;
      for (std::size_t i = 0; i < line.size(); ++i) line[i] += taps.weights[k] * row[i];
    }
    for (std::size_t i = 0; i < line.size(); ++i)
      result.pixels[std::size_t(y * size * 3) + i] =
          std::uint8_t(std::clamp(std::nearbyint(line[i]), 0.0f, 255.0f));
  }
  return result;
}

void write_planes(const Image& image, std::uint8_t* planes) {
  const std::int64_t area = image.height * image.width;
  for (std::int64_t i = 0; i < area; ++i)
    for (std::int64_t c = 0; c < 3; ++c)
      planes[c * area + i] = image.pixels[std::size_t(i * 3 + c)];
}

Image read_planes(const std::uint8_t* planes, std::int64_t height, std::int64_t width) {
  const std::int64_t area = height * width;
  Image image{height, width, std::vector<std::uint8_t>(std::size_t(area * 3))};
  for (std::int64_t i = 0; i < area; ++i)
    for (std::int64_t c = 0; c < 3; ++c)
      image.pixels[std::size_t(i * 3 + c)] = planes[c * area + i];
  return image;
}

}  // namespace keel::lab
