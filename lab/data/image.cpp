#include "lab/data/image.h"

#include <cstring>

#include "lab/require.h"
#include "lab/storage/files.h"

namespace keel::lab {
namespace {

constexpr std::uint64_t kLongestSide = 1 << 16, kMostPixels = 1 << 27, kLongestFile = 1 << 30;

}  // namespace

void require_sane_size(std::uint64_t height, std::uint64_t width) {
  require(height >= 1 && width >= 1 && height <= kLongestSide && width <= kLongestSide &&
              height * width <= kMostPixels,
          "expected an image of at most {} pixels, got {} x {}", kMostPixels, height, width);
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
  const std::string bytes = read_file(file, kLongestFile);
  try {
    return decode({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
  } catch (const Error& error) {
    throw Error(file.string() + ": " + error.what());
  }
}

}  // namespace keel::lab
