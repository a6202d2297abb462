#include <png.h>

#include <cstring>

#include "keel/error.h"
#include "lab/data/image.h"

namespace keel::lab {
namespace {

struct PngDecoder : png_image {
  PngDecoder() {
    std::memset(static_cast<png_image*>(this), 0, sizeof(png_image));
    version = PNG_IMAGE_VERSION;
  }
  ~PngDecoder() { png_image_free(this); }
};

}  // namespace

Image decode_png(std::span<const std::uint8_t> bytes) {
  PngDecoder decoder;
  const auto damaged = [&] { return Error(std::string("damaged PNG: ") + decoder.message); };
  if (!png_image_begin_read_from_memory(&decoder, bytes.data(), bytes.size())) throw damaged();
  require_sane_size(decoder.height, decoder.width);
  decoder.format = PNG_FORMAT_RGB;
  // Without this, libpng takes 16-bit numbers for linear light and brightens them.
  decoder.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;
  Image image{std::int64_t(decoder.height), std::int64_t(decoder.width), {}};
  image.pixels.resize(PNG_IMAGE_SIZE(decoder));
  const png_color white{255, 255, 255};
  if (!png_image_finish_read(&decoder, &white, image.pixels.data(), 0, nullptr)) throw damaged();
  return image;
}

}  // namespace keel::lab
