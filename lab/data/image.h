#pragma once

// One image, decoded from a file.

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace keel::lab {

struct Image {
  std::int64_t height = 0, width = 0;
  std::vector<std::uint8_t> pixels;  ///< (height, width, 3), red first
};

/// Decodes JPEG or PNG, detected from the bytes. Grey and CMYK become RGB, and transparency is blended with white.
/// Throws for damaged or truncated data; the message does not name the file.
Image decode(std::span<const std::uint8_t> bytes);
Image decode_jpeg(std::span<const std::uint8_t> bytes);
Image decode_png(std::span<const std::uint8_t> bytes);

/// decode() of a file. Errors name the file.
Image read_image(const std::filesystem::path& file);

/// Throws if an image claims an implausible number of pixels, before memory is allocated for it.
void require_sane_size(std::uint64_t height, std::uint64_t width);

}  // namespace keel::lab
