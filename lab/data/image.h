#pragma once

// One image: decoded from a file, scaled, laid out as a network wants it.

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace keel::lab {

struct Image {
  std::int64_t height = 0, width = 0;
  std::vector<std::uint8_t> pixels;  ///< (height, width, 3), red first
};

/// JPEG or PNG, by what the bytes say. Grey and CMYK become RGB; transparent pixels show white
/// behind. Damaged or cut files are errors, without the file's name.
Image decode(std::span<const std::uint8_t> bytes);
Image decode_jpeg(std::span<const std::uint8_t> bytes);
Image decode_png(std::span<const std::uint8_t> bytes);

/// decode() of a file; errors name it.
Image read_image(const std::filesystem::path& file);

/// Throws where an image claims more pixels than a sane one has: memory is asked for on its word.
void require_sane_size(std::uint64_t height, std::uint64_t width);

/// The largest square about the centre, scaled to size x size: bilinear, over all pixels that a new
/// one covers.
Image squared(const Image& image, std::int64_t size);

/// To (3, height, width).
void write_planes(const Image& image, std::uint8_t* planes);
Image read_planes(const std::uint8_t* planes, std::int64_t height, std::int64_t width);

}  // namespace keel::lab
