#pragma once

// Test images with known pixels, encoded by libjpeg and libpng.

#include <cstdio>
// jpeglib.h needs it.
#include <jpeglib.h>
#include <png.h>

#include <cmath>
#include <cstdlib>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "lab/data/image.h"

namespace keel::lab {

inline std::span<const std::uint8_t> bytes_of(const std::string& text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

/// Smooth, so that JPEG preserves it, and different in every channel and direction.
inline Image smooth_picture(std::int64_t height, std::int64_t width, double phase = 0) {
  Image image{height, width, {}};
  for (std::int64_t y = 0; y < height; ++y)
    for (std::int64_t x = 0; x < width; ++x)
      for (int c = 0; c < 3; ++c)
        image.pixels.push_back(std::uint8_t(
            128 + 90 * std::sin(phase + 0.08 * double(x) * (c + 1) + 0.05 * double(y) * (3 - c))));
  return image;
}

/// `channels` is 1 (grey), 3 (RGB) or 4 (CMYK, inverted as Adobe's programs do). `scans` are those of a progressive
/// image.
inline std::string jpeg(std::int64_t height, std::int64_t width, int channels,
                        const std::vector<std::uint8_t>& pixels, int quality = 98,
                        const std::vector<jpeg_scan_info>& scans = {}) {
  jpeg_compress_struct encoder{};
  jpeg_error_mgr reporter;
  encoder.err = jpeg_std_error(&reporter);
  jpeg_create_compress(&encoder);
  unsigned char* buffer = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&encoder, &buffer, &size);
  encoder.image_height = JDIMENSION(height);
  encoder.image_width = JDIMENSION(width);
  encoder.input_components = channels;
  encoder.in_color_space = channels == 1 ? JCS_GRAYSCALE : channels == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&encoder);
  if (channels == 4) jpeg_set_colorspace(&encoder, JCS_YCCK);
  jpeg_set_quality(&encoder, quality, TRUE);
  for (int c = 0; c < channels; ++c)
    encoder.comp_info[c].h_samp_factor = encoder.comp_info[c].v_samp_factor = 1;
  if (!scans.empty()) {
    encoder.scan_info = scans.data();
    encoder.num_scans = int(scans.size());
  }
  jpeg_start_compress(&encoder, TRUE);
  while (encoder.next_scanline < encoder.image_height) {
    JSAMPROW row = const_cast<JSAMPROW>(pixels.data() + encoder.next_scanline * width * channels);
    jpeg_write_scanlines(&encoder, &row, 1);
  }
  jpeg_finish_compress(&encoder);
  jpeg_destroy_compress(&encoder);
  std::string result(reinterpret_cast<char*>(buffer), size);
  std::free(buffer);
  return result;
}

inline std::string jpeg(const Image& image) {
  return jpeg(image.height, image.width, 3, image.pixels);
}

/// `format` is one of libpng's PNG_FORMAT_*; `pixels` is laid out accordingly.
inline std::string png(std::int64_t height, std::int64_t width, std::uint32_t format,
                       const void* pixels, const void* colours = nullptr, int entries = 0) {
  png_image encoder{};
  encoder.version = PNG_IMAGE_VERSION;
  encoder.height = png_uint_32(height);
  encoder.width = png_uint_32(width);
  encoder.format = format;
  encoder.colormap_entries = png_uint_32(entries);
  png_alloc_size_t size = 0;
  if (!png_image_write_to_memory(&encoder, nullptr, &size, 0, pixels, 0, colours))
    throw std::runtime_error(encoder.message);
  std::string result(size, '\0');
  if (!png_image_write_to_memory(&encoder, result.data(), &size, 0, pixels, 0, colours))
    throw std::runtime_error(encoder.message);
  result.resize(size);
  return result;
}

inline std::string png(const Image& image) {
  return png(image.height, image.width, PNG_FORMAT_RGB, image.pixels.data());
}

}  // namespace keel::lab
