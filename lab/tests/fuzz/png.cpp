#include <algorithm>
#include <cstdint>

#include "lab/storage/files.h"
#include "lab/tests/data/pictures.h"
#include "lab/tests/fuzz/fuzz.h"

namespace keel::fuzz {

void attack_image(const std::string& bytes);

namespace png {

constexpr std::size_t kMagic = 8;

/// Fixes the checksum of every chunk. A mutation never gets it right, and libpng stops at a wrong one.
std::string mended(std::string bytes) {
  for (std::size_t at = kMagic; at + 12 <= bytes.size();) {
    std::uint64_t length = 0;
    for (std::size_t i = 0; i < 4; ++i)
      length = length << 8 | static_cast<unsigned char>(bytes[at + i]);
    const std::size_t end = at + 8 + std::min<std::uint64_t>(length, bytes.size() - at - 12);
    const std::uint32_t sum = lab::crc32(std::string_view(bytes).substr(at + 4, end - at - 4));
    for (std::size_t i = 0; i < 4; ++i) bytes[end + i] = char(sum >> (24 - 8 * i));
    at = end + 4;
  }
  return bytes;
}

void attack(const std::string& bytes) { attack_image(mended(bytes)); }

std::vector<std::string> seeds() {
  const std::vector<std::uint8_t> pixels(5 * 7 * 8, 99), colours(4 * 4, 120), indices(5 * 7, 2);
  const auto encoded = [&](std::uint32_t format) { return lab::png(5, 7, format, pixels.data()); };
  return {encoded(PNG_FORMAT_GRAY),
          encoded(PNG_FORMAT_GA),
          encoded(PNG_FORMAT_RGB),
          encoded(PNG_FORMAT_RGBA),
          encoded(PNG_FORMAT_LINEAR_Y),
          encoded(PNG_FORMAT_LINEAR_RGB_ALPHA),
          lab::png(5, 7, PNG_FORMAT_RGBA_COLORMAP, indices.data(), colours.data(), 4)};
}

const Registration registration({"png", attack, seeds});

}  // namespace png
}  // namespace keel::fuzz
