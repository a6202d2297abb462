// libjpeg reports errors with a function that must not return, and it cannot pass exceptions, so this uses longjmp.
// No object with a destructor may be created between setjmp and longjmp.

#include <csetjmp>
#include <cstddef>
#include <cstdio>
// jpeglib.h needs the two headers above.
#include <jerror.h>
#include <jpeglib.h>

#include "keel/error.h"
#include "lab/data/image.h"

namespace keel::lab {
namespace {

struct Reporter {
  jpeg_error_mgr base;  // must be first: libjpeg passes a pointer to it, which is cast back
  std::jmp_buf back;
  char message[JMSG_LENGTH_MAX];
};

[[noreturn]] void give_up(j_common_ptr decoder) {
  auto* reporter = reinterpret_cast<Reporter*>(decoder->err);
  decoder->err->format_message(decoder, reporter->message);
  std::longjmp(reporter->back, 1);
}

/// After damage libjpeg continues and fills in grey, so treat that as an error. Stray bytes between segments are
/// harmless.
void on_message(j_common_ptr decoder, int level) {
  if (level < 0 && decoder->err->msg_code != JWRN_EXTRANEOUS_DATA) give_up(decoder);
}

/// Limits the number of scans: a few bytes can request one more pass over all pixels, and a file can have many of
/// them.
void count_scans(j_common_ptr common) {
  constexpr int kMostScans = 100;  // encoders write about ten
  auto* decoder = reinterpret_cast<j_decompress_ptr>(common);
  if (decoder->input_scan_number <= kMostScans) return;
  auto* reporter = reinterpret_cast<Reporter*>(decoder->err);
  std::snprintf(reporter->message, sizeof reporter->message, "more than %d scans", kMostScans);
  std::longjmp(reporter->back, 1);
}

bool start(jpeg_decompress_struct& decoder, Reporter& reporter,
           std::span<const std::uint8_t> bytes) {
  if (setjmp(reporter.back)) return false;
  jpeg_create_decompress(&decoder);
  jpeg_mem_src(&decoder, bytes.data(), static_cast<unsigned long>(bytes.size()));
  jpeg_read_header(&decoder, TRUE);
  const bool inks = decoder.jpeg_color_space == JCS_CMYK || decoder.jpeg_color_space == JCS_YCCK;
  decoder.out_color_space = inks ? JCS_CMYK : JCS_RGB;
  jpeg_calc_output_dimensions(&decoder);
  return true;
}

bool read_lines(jpeg_decompress_struct& decoder, Reporter& reporter, std::uint8_t* pixels) {
  if (setjmp(reporter.back)) return false;
  jpeg_start_decompress(&decoder);
  const std::size_t stride = std::size_t(decoder.output_width) * decoder.output_components;
  while (decoder.output_scanline < decoder.output_height) {
    JSAMPROW line = pixels + decoder.output_scanline * stride;
    jpeg_read_scanlines(&decoder, &line, 1);
  }
  jpeg_finish_decompress(&decoder);
  return true;
}

/// Adobe's programs store inverted inks, and mark such files.
std::vector<std::uint8_t> from_inks(const std::vector<std::uint8_t>& cmyk, bool inverted) {
  std::vector<std::uint8_t> rgb(cmyk.size() / 4 * 3);
  for (std::size_t i = 0; i < cmyk.size() / 4; ++i) {
    const auto light = [&](std::size_t k) {
      return inverted ? int(cmyk[i * 4 + k]) : 255 - int(cmyk[i * 4 + k]);
    };
    for (std::size_t c = 0; c < 3; ++c)
      rgb[i * 3 + c] = std::uint8_t((light(c) * light(3) + 127) / 255);
  }
  return rgb;
}

struct JpegDecoder : jpeg_decompress_struct {
  JpegDecoder() : jpeg_decompress_struct{} {}
  ~JpegDecoder() { jpeg_destroy_decompress(this); }
};

}  // namespace

Image decode_jpeg(std::span<const std::uint8_t> bytes) {
  Reporter reporter{};
  JpegDecoder decoder;
  decoder.err = jpeg_std_error(&reporter.base);
  reporter.base.error_exit = give_up;
  reporter.base.emit_message = on_message;
  jpeg_progress_mgr watch{};
  watch.progress_monitor = count_scans;
  const auto damaged = [&] { return Error(std::string("damaged JPEG: ") + reporter.message); };

  if (!start(decoder, reporter, bytes)) throw damaged();
  decoder.progress = &watch;
  require_sane_size(decoder.output_height, decoder.output_width);
  const bool inks = decoder.out_color_space == JCS_CMYK;
  Image image{std::int64_t(decoder.output_height), std::int64_t(decoder.output_width), {}};
  image.pixels.resize(std::size_t(image.height * image.width * (inks ? 4 : 3)));
  if (!read_lines(decoder, reporter, image.pixels.data())) throw damaged();
  if (inks) image.pixels = from_inks(image.pixels, decoder.saw_Adobe_marker);
  return image;
}

}  // namespace keel::lab
