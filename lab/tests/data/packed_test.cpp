#include <gtest/gtest.h>

#include "lab/data/data_set.h"
#include "lab/storage/files.h"
#include "lab/storage/safetensors.h"
#include "support/errors.h"
#include "support/files.h"
#include "support/random.h"

namespace keel::lab {
namespace {

using keel::testing::read_bytes;
using keel::testing::refuses;
using keel::testing::TemporaryFolder;
using keel::testing::write_bytes;

DataSet some_data() {
  DataOptions options;
  options.train_limit = 30;
  options.test_limit = 20;
  options.size = 12;
  return load(options);
}

DataSet load_from(const std::filesystem::path& file, std::int64_t size = 0) {
  DataOptions options;
  options.source = "packed";
  options.path = file;
  options.size = size;
  return load(options);
}

TEST(Packed, ComesBackAsItWas) {
  const TemporaryFolder folder;
  const DataSet data = some_data();
  pack(data, folder / "shapes.keel");
  const DataSet again = load_from(folder / "shapes.keel");
  EXPECT_EQ(again.name, data.name);
  EXPECT_EQ(again.classes, data.classes);
  EXPECT_EQ(again.mean, data.mean);
  EXPECT_EQ(again.deviation, data.deviation);
  EXPECT_TRUE(torch::equal(again.train.pixels, data.train.pixels));
  EXPECT_TRUE(torch::equal(again.train.labels, data.train.labels));
  EXPECT_TRUE(torch::equal(again.test.pixels, data.test.pixels));
  EXPECT_TRUE(torch::equal(again.test.labels, data.test.labels));
  EXPECT_EQ(load_from(folder / "shapes.keel", 8).train.pixels.size(3), 8);
  // One file, and no temporary one beside it.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(Packed, ACutFileIsAnErrorWhereverItIsCut) {
  const TemporaryFolder folder;
  pack(some_data(), folder / "whole.keel");
  const std::string whole = read_bytes(folder / "whole.keel");
  for (std::size_t length = 0; length < whole.size(); length += 1 + length / 8) {
    write_bytes(folder / "cut.keel", whole.substr(0, length));
    EXPECT_TRUE(refuses({"cut.keel"}, [&] { load_from(folder / "cut.keel"); })) << length;
  }
  write_bytes(folder / "long.keel", whole + "x");
  EXPECT_TRUE(refuses({"long.keel"}, [&] { load_from(folder / "long.keel"); }));
}

TEST(Packed, AnyDamagedByteIsSeen) {
  const TemporaryFolder folder;
  const std::string file = folder / "damaged.keel";
  pack(some_data(), file);
  const std::string whole = read_bytes(file);
  keel::testing::Random random(3);
  for (int trial = 0; trial < 300; ++trial) {
    std::string bytes = whole;
    // Half of them in the header, where damage does more.
    const double reach = trial % 2 ? double(bytes.size()) : 900;
    char& byte = bytes[std::size_t(random.uniform() * reach)];
    const char before = byte;
    byte = char(byte ^ char(1 << int(random.uniform() * 8)));
    write_bytes(file, bytes);
    // Damage in padding or JSON whitespace changes nothing, so the same data may be read.
    try {
      const DataSet data = load_from(file), expected = some_data();
      EXPECT_TRUE(torch::equal(data.train.pixels, expected.train.pixels)) << int(before);
      EXPECT_TRUE(torch::equal(data.test.labels, expected.test.labels)) << int(before);
      EXPECT_EQ(data.classes, expected.classes);
      EXPECT_EQ(data.mean, expected.mean);
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("damaged.keel"), std::string::npos);
    }
  }
  std::string bytes = whole;
  bytes[bytes.size() - 5000] = char(bytes[bytes.size() - 5000] ^ 4);
  write_bytes(file, bytes);
  EXPECT_TRUE(refuses({"damaged: expected checksum"}, [&] { load_from(file); }));
}

TEST(Packed, RefusesOtherFiles) {
  const TemporaryFolder folder;
  write_file_atomically(folder / "model.safetensors",
                        safetensors_bytes({{"weight", torch::zeros({3})}}));
  EXPECT_TRUE(refuses({"model.safetensors", "expected a packed data set", "format"},
                      [&] { load_from(folder / "model.safetensors"); }));
  EXPECT_TRUE(
      refuses({"expected a regular file, got a folder"}, [&] { load_from(folder.path()); }));
  EXPECT_TRUE(refuses({"none.keel", "cannot open"}, [&] { load_from(folder / "none.keel"); }));
}

TEST(Packed, MetadataAreReadWithCare) {
  const TemporaryFolder folder;
  const auto with = [&](const std::string& name, const std::string& value) {
    pack(some_data(), folder / "good.keel");
    SafeTensors content = parse_safetensors(read_file(folder / "good.keel"), "good.keel");
    content.metadata[name] = value;
    const NamedTensors tensors(content.tensors.begin(), content.tensors.end());
    write_file_atomically(folder / "bad.keel", safetensors_bytes(tensors, content.metadata));
    return refuses({"bad.keel", name}, [&] { load_from(folder / "bad.keel"); });
  };
  for (const std::string name : {"classes", "mean", "deviation"})
    for (const std::string& value :
         {std::string(200'000, '['), std::string("[1,"), std::string("{}"), std::string("7")})
      EXPECT_TRUE(with(name, value)) << name << " " << value.substr(0, 10);
  DataSet data = some_data();
  data.name = "caf\xe9";  // Latin-1
  EXPECT_TRUE(refuses({"name in UTF-8"}, [&] { pack(data, folder / "x.keel"); }));
}

TEST(Packed, ChecksTheLabelsAgainstTheClasses) {
  const TemporaryFolder folder;
  DataSet data = some_data();
  data.test.labels[7] = 10;
  pack(data, folder / "wrong.keel");
  EXPECT_TRUE(refuses({"wrong.keel", "test.labels: entry 7: expected a label from 0 to 9, got 10"},
                      [&] { load_from(folder / "wrong.keel"); }));
  data.test = {};
  EXPECT_TRUE(
      refuses({"none.keel", "got no test.pixels"}, [&] { pack(data, folder / "none.keel"); }));
  EXPECT_THROW(pack(some_data(), "/no/such/folder/x.keel"), std::system_error);
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

TEST(Packed, ScalesTheCentredSquare) {
  torch::manual_seed(2);
  for (const auto& [height, width, size] : {std::tuple<int, int, int>{64, 64, 32},
                                            {33, 47, 32},
                                            {100, 70, 32},
                                            {20, 28, 32},
                                            {8, 5, 12}}) {
    const auto images = torch::randint(0, 256, {2, 3, height, width}, torch::kUInt8);
    const auto scaled = resized({images, torch::zeros(2)}, size).pixels;
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
  EXPECT_TRUE(resized({same, torch::zeros(1)}, 9).pixels.is_same(same));
}

}  // namespace
}  // namespace keel::lab
