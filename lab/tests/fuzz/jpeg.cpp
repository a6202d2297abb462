#include "lab/data/sources.h"
#include "lab/tests/data/pictures.h"
#include "lab/tests/fuzz/fuzz.h"
#include "support/files.h"

namespace keel::fuzz {

/// Reads and scales.
void attack_image(const std::string& bytes) {
  const auto file = folder() / "hostile.image";
  testing::write_bytes(file, bytes);
  const lab::Image image = lab::read_image(file);
  expect(image.pixels.size() == std::size_t(image.height * image.width * 3), "three bytes a pixel");
  must("to scale what was read",
       [&] { return lab::squared(lab::planes_of(image).unsqueeze(0), 4); });
}

namespace jpeg {

std::vector<std::string> seeds() {
  const auto pixels = [](int channels) { return std::vector<std::uint8_t>(9 * 11 * channels, 77); };
  return {lab::jpeg(9, 11, 1, pixels(1)), lab::jpeg(9, 11, 4, pixels(4)),
          lab::jpeg(lab::smooth_picture(17, 8))};
}

const Registration registration({"jpeg", attack_image, seeds});

}  // namespace jpeg
}  // namespace keel::fuzz
