#include "lab/data/image.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "lab/data/sources.h"
#include "pictures.h"
#include "support/errors.h"
#include "support/files.h"

namespace keel::lab {
namespace {

using keel::testing::refuses;

int farthest(const std::vector<std::uint8_t>& a, const std::vector<std::uint8_t>& b) {
  EXPECT_EQ(a.size(), b.size());
  int most = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    most = std::max(most, std::abs(int(a[i]) - int(b[i])));
  return most;
}

TEST(Image, PngComesBackExactly) {
  const Image picture = smooth_picture(13, 21);
  const Image decoded = decode(bytes_of(png(picture)));
  EXPECT_EQ(decoded.height, 13);
  EXPECT_EQ(decoded.width, 21);
  EXPECT_EQ(decoded.pixels, picture.pixels);
}

TEST(Image, PngOfOtherKindsBecomesRgb) {
  const std::vector<std::uint8_t> grey{0, 50, 100, 150, 200, 255};
  const Image from_grey = decode(bytes_of(png(2, 3, PNG_FORMAT_GRAY, grey.data())));
  const std::vector<std::uint8_t> colours{10, 20, 30, 200, 100, 0};
  const std::vector<std::uint8_t> places{0, 1, 1, 0, 0, 1};
  const Image from_map =
      decode(bytes_of(png(2, 3, PNG_FORMAT_RGB_COLORMAP, places.data(), colours.data(), 2)));
  for (std::size_t i = 0; i < 6; ++i)
    for (std::size_t c = 0; c < 3; ++c) {
      EXPECT_EQ(from_grey.pixels[i * 3 + c], grey[i]);
      EXPECT_EQ(from_map.pixels[i * 3 + c], colours[places[i] * 3 + c]);
    }
  // Opaque, fully transparent, and half-transparent black (libpng blends in linear light).
  const std::vector<std::uint8_t> clear{10, 20, 30, 255, 10, 20, 30, 0};
  const Image from_alpha = decode(bytes_of(png(1, 2, PNG_FORMAT_RGBA, clear.data())));
  EXPECT_EQ(from_alpha.pixels, (std::vector<std::uint8_t>{10, 20, 30, 255, 255, 255}));
}

TEST(Image, PngOf16BitsKeepsItsBrightness) {
  // 2 x 1, grey, 48 * 257 and 200 * 257. libpng's simple interface cannot write one without saying
  // how bright it is.
  const std::string file(
      "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x02\0\0\0\x01\x10\0\0\0\0\x81\xd9\xfc\x15\0\0\0\rIDATx"
      "\xda\x63\x30\x30\x38\x71\x02\0\x03\xad\x01\xf1\xda\x34\x2e\x07\0\0\0\0IEND\xae\x42\x60\x82",
      70);
  EXPECT_EQ(decode(bytes_of(file)).pixels, (std::vector<std::uint8_t>{48, 48, 48, 200, 200, 200}));
}

TEST(Image, JpegComesBackAsNearAsItsQuality) {
  const Image picture = smooth_picture(37, 50);
  const Image decoded = decode(bytes_of(jpeg(picture)));
  EXPECT_EQ(decoded.height, 37);
  EXPECT_EQ(decoded.width, 50);
  EXPECT_LE(farthest(decoded.pixels, picture.pixels), 6);
}

TEST(Image, GreyAndInkJpegsBecomeRgb) {
  const Image picture = smooth_picture(24, 24);
  std::vector<std::uint8_t> grey, inks, from_inks, from_grey;
  for (std::size_t i = 0; i < 24 * 24; ++i) {
    const std::uint8_t* at = picture.pixels.data() + i * 3;
    grey.push_back(at[0]);
    from_grey.insert(from_grey.end(), 3, at[0]);
    // An inverted ink value is the light it passes. Black passes 200 of 255 here.
    inks.insert(inks.end(), {at[0], at[1], at[2], 200});
    for (int c = 0; c < 3; ++c) from_inks.push_back(std::uint8_t(at[c] * 200 / 255));
  }
  EXPECT_LE(farthest(decode(bytes_of(jpeg(24, 24, 1, grey))).pixels, from_grey), 4);
  EXPECT_LE(farthest(decode(bytes_of(jpeg(24, 24, 4, inks))).pixels, from_inks), 6);
}

TEST(Image, ACutFileIsAnErrorWhereverItIsCut) {
  const Image picture = smooth_picture(32, 32);
  for (const std::string& whole : {jpeg(picture), png(picture)}) {
    ASSERT_NO_THROW(decode(bytes_of(whole)));
    // libpng's last chunk and libjpeg's end marker carry no pixels.
    const std::size_t needed = whole.size() - (whole[0] == '\x89' ? 16 : 2);
    for (std::size_t length = 0; length < needed; length += 1 + length / 16)
      EXPECT_THROW(decode(bytes_of(whole.substr(0, length))), Error)
          << "cut to " << length << " of " << whole.size();
  }
}

TEST(Image, DoesNotBelieveAbsurdSizes) {
  std::string huge = jpeg(smooth_picture(16, 16));
  const std::size_t frame = huge.find("\xff\xc0");
  ASSERT_NE(frame, std::string::npos);
  huge.replace(frame + 5, 4, std::string("\x80\x00\x80\x00", 4));
  EXPECT_TRUE(refuses({"pixels, got 32768 x 32768"}, [&] { decode(bytes_of(huge)); }));
}

/// Each scan is a pass over all pixels, however few bytes it has.
TEST(Image, DoesNotFollowAFileThroughHundredsOfScans) {
  const Image picture = smooth_picture(16, 16);
  const auto with_scans = [&](int frequencies_a_scan) {
    std::vector<jpeg_scan_info> scans{{3, {0, 1, 2, 0}, 0, 0, 0, 0}};
    for (int c = 0; c < 3; ++c)
      for (int k = 1; k < 64; k += frequencies_a_scan)
        scans.push_back({1, {c, 0, 0, 0}, k, std::min(63, k + frequencies_a_scan - 1), 0, 0});
    return jpeg(16, 16, 3, picture.pixels, 98, scans);
  };
  const Image few = decode(bytes_of(with_scans(8)));  // 25 of them
  EXPECT_EQ(few.pixels, decode(bytes_of(jpeg(picture))).pixels);
  EXPECT_TRUE(
      refuses({"damaged JPEG: more than 100 scans"}, [&] { decode(bytes_of(with_scans(1))); }));
}

TEST(Image, ErrorsNameTheFile) {
  const keel::testing::TemporaryFolder folder;
  const auto check = [&](const std::string& name, const std::string& bytes,
                         const std::string& part) {
    keel::testing::write_bytes(folder / name, bytes);
    EXPECT_TRUE(refuses({(folder / name).string(), part}, [&] { read_image(folder / name); }));
  };
  const std::string whole = jpeg(smooth_picture(32, 32));
  check("cut.jpg", whole.substr(0, whole.size() / 2), "damaged JPEG: Premature end of JPEG file");
  check("cut.png", png(smooth_picture(32, 32)).substr(0, 120), "damaged PNG: ");
  check("text.jpg", "not an image at all", "neither's");
  check("empty.png", "", "empty file");
  EXPECT_TRUE(refuses({"none.jpg", "cannot open"}, [&] { read_image(folder / "none.jpg"); }));
}

/// The definition: a triangle over all old pixels that a new one covers, in both directions.
double scaled_pixel(const torch::Tensor& square, std::int64_t size, std::int64_t row,
                    std::int64_t column) {
  const std::int64_t side = square.size(0);
  const double step = double(side) / double(size), reach = std::max(step, 1.0);
  const auto weights = [&](std::int64_t place) {
    const auto distance = torch::arange(side, torch::kDouble) + 0.5 - (double(place) + 0.5) * step;
    const auto triangle = (1 - distance.abs() / reach).clamp_min(0);
    return triangle / triangle.sum();
  };
  return weights(row).matmul(square.to(torch::kDouble)).matmul(weights(column)).item<double>();
}

TEST(Image, ScalesTheCentredSquare) {
  torch::manual_seed(2);
  for (const auto& [height, width, size] : {std::tuple<int, int, int>{64, 64, 32},
                                            {33, 47, 32},
                                            {100, 70, 32},
                                            {20, 28, 32},
                                            {8, 5, 12}}) {
    const auto images = torch::randint(0, 256, {2, 3, height, width}, torch::kUInt8);
    const auto scaled = squared(images, size);
    ASSERT_EQ(scaled.sizes(), (std::vector<std::int64_t>{2, 3, size, size}));
    const int side = std::min(height, width);
    const auto square =
        images[1][2].narrow(0, (height - side) / 2, side).narrow(1, (width - side) / 2, side);
    for (int row = 0; row < size; ++row)
      for (int column = 0; column < size; column += 3)
        EXPECT_NEAR(scaled[1][2][row][column].item<int>(), scaled_pixel(square, size, row, column),
                    0.51)
            << height << " x " << width;
  }
  const auto same = torch::randint(0, 256, {1, 3, 9, 9}, torch::kUInt8);
  EXPECT_TRUE(torch::equal(squared(same, 9), same));
}

TEST(Image, HasAPlaneForEachColour) {
  const Image picture = smooth_picture(5, 7);
  const auto planes = planes_of(picture);
  EXPECT_EQ(planes.sizes(), (std::vector<std::int64_t>{3, 5, 7}));
  EXPECT_EQ(planes[2][3][4].item<int>(), picture.pixels[(3 * 7 + 4) * 3 + 2]);
}

}  // namespace
}  // namespace keel::lab
