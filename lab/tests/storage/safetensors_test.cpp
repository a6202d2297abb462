#include "lab/storage/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "lab/storage/files.h"
#include "lab/tests/train/support.h"

namespace keel::lab {
namespace {

using nlohmann::json;
using test::error_of;
using torch::Tensor;

NamedTensors example() {
  const Tensor numbers = torch::arange(24, torch::kFloat).reshape({2, 3, 4}) / 7;
  NamedTensors tensors;
  for (const auto type :
       {torch::kBool, torch::kUInt8, torch::kInt8, torch::kInt16, torch::kInt32, torch::kInt64,
        torch::kFloat16, torch::kBFloat16, torch::kFloat32, torch::kFloat64})
    tensors.emplace_back(c10::toString(type), numbers.to(type));
  tensors.emplace_back("turned", numbers.permute({2, 0, 1}));
  tensors.emplace_back("scalar", torch::tensor(-0.0));
  tensors.emplace_back("empty", torch::empty({3, 0, 2}));
  tensors.emplace_back("ends \" here \xc3\xa9", torch::ones({1}));
  return tensors;
}

/// Builds a file by hand.
std::string file_of(const std::string& header, std::size_t data_bytes) {
  std::string bytes(8, '\0');
  const std::uint64_t length = header.size();
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + std::string(data_bytes, '\1');
}

std::string complaint(const std::string& bytes) {
  return error_of([&] { parse_safetensors(bytes, "FILE"); });
}

TEST(SafeTensorsTest, EverythingComesBackToTheLastBit) {
  const auto written = example();
  const test::TemporaryFolder folder;
  write_file_atomically(folder / "all.safetensors", safetensors_bytes(written, {{"format", "pt"}}));
  const SafeTensors back =
      parse_safetensors(read_file(folder / "all.safetensors"), "all.safetensors");
  ASSERT_EQ(back.tensors.size(), written.size());
  for (const auto& [name, tensor] : written) {
    const Tensor& found = back.tensors.at(name);
    EXPECT_EQ(found.scalar_type(), tensor.scalar_type()) << name;
    EXPECT_EQ(found.sizes(), tensor.sizes()) << name;
    EXPECT_TRUE(found.equal(tensor)) << name;
  }
  EXPECT_TRUE(std::signbit(back.tensors.at("scalar").item<float>()));
  EXPECT_EQ(back.metadata.at("format"), "pt");
}

TEST(SafeTensorsTest, HeaderIsAsTheFormatSays) {
  const std::string bytes = safetensors_bytes(
      {{"flag", torch::ones({3}, torch::kBool)}, {"x", torch::ones({2, 1}, torch::kFloat)}});
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  EXPECT_EQ(length % 8, 0u);
  const json header = json::parse(bytes.substr(8, length));
  EXPECT_EQ(header, json::parse(R"({"x": {"dtype": "F32", "shape": [2, 1], "data_offsets": [0, 8]},
      "flag": {"dtype": "BOOL", "shape": [3], "data_offsets": [8, 11]}})"));
  EXPECT_EQ(bytes.size(), 8 + length + 11);
  const float one = 1;
  EXPECT_EQ(std::memcmp(bytes.data() + 8 + length, &one, 4), 0);
}

TEST(SafeTensorsTest, EveryTruncationIsNoticed) {
  const std::string whole = safetensors_bytes(example());
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_NE(complaint(whole.substr(0, size)), "no error") << size;
  EXPECT_NE(complaint(whole + "x"), "no error");
}

TEST(SafeTensorsTest, RefusesWhatDoesNotFit) {
  const auto tensor = [](const std::string& dtype, const std::string& shape,
                         const std::string& offsets) {
    return "{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}";
  };
  const auto one = [&](const std::string& d, const std::string& s, const std::string& o) {
    return complaint(file_of("{\"x\":" + tensor(d, s, o) + "}", 8));
  };
  ASSERT_EQ(one("F32", "[2]", "[0,8]"), "no error");
  const std::string start = "FILE is damaged: ";
  EXPECT_EQ(one("F32", "[3]", "[0,8]"),
            start + "tensor 'x' of type \"F32\" and shape [3] has 8 bytes");
  EXPECT_EQ(one("F32", "[4]", "[0,16]"), start + "tensor 'x' lies at bytes 0 to 16 of 8");
  EXPECT_EQ(one("F32", "[1]", "[4,8]"), start + "tensor 'x' begins at byte 4, expected 0");
  EXPECT_EQ(one("F32", "[1]", "[0,4]"), start + "it has 8 bytes of tensors, expected 4");
  EXPECT_EQ(one("F31", "[2]", "[0,8]"), start + "tensor 'x' has the unknown type \"F31\"");
  for (const char* shape : {"[-2]", "[2.0]", "2", "[\"2\"]", "[4611686018427387904,8]",
                            "[4294967296,4294967296,2]", "[18446744073709551615]", "[[2]]", "null"})
    EXPECT_NE(one("F32", shape, "[0,8]"), "no error") << shape;
  for (const char* offsets :
       {"[8,0]", "[0]", "[0,8,8]", "[-8,0]", "[0,18446744073709551615]", "{}"})
    EXPECT_NE(one("F32", "[2]", offsets), "no error") << offsets;

  const std::string x = tensor("F32", "[1]", "[0,4]"), y = tensor("F32", "[2]", "[0,8]");
  EXPECT_NE(complaint(file_of("{\"x\":" + x + ",\"y\":" + y + "}", 8)), "no error");
  EXPECT_EQ(complaint(file_of("{\"x\":" + x + ",\"x\":" + x + "}", 4)),
            start + "its header has the name 'x' twice in one object");
  EXPECT_NE(complaint(file_of("{\"__metadata__\":{\"a\":1}}", 0)), "no error");
  EXPECT_NE(complaint(file_of("[]", 0)), "no error");
  EXPECT_NE(complaint(file_of(std::string(200000, '['), 0)), "no error");
  // It has no data, but LibTorch would multiply the other extents.
  EXPECT_NE(
      complaint(file_of(
          "{\"x\":" + tensor("F32", "[0,4611686018427387904,4611686018427387904]", "[0,0]") + "}",
          0)),
      "no error");
  EXPECT_EQ(complaint(file_of("{\"x\":" + tensor("F32", "[0,1000000]", "[0,0]") + "}", 0)),
            "no error");
  EXPECT_NE(complaint(std::string(8, '\xff') + "{}"), "no error");
  EXPECT_EQ(complaint(file_of("{}", 0)), "no error");
}

// This took 97 seconds when the time per tensor grew with the number of tensors before it.
TEST(SafeTensorsTest, ManyTensorsTakeNoLongerEach) {
  std::string header = "{";
  for (int i = 0; i < 80'000; ++i)
    header += (i ? ",\"t" : "\"t") + std::to_string(i) +
              "\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[" + std::to_string(i) + "," +
              std::to_string(i + 1) + "]}";
  EXPECT_EQ(parse_safetensors(file_of(header + "}", 80'000), "FILE").tensors.size(), 80'000u);
}

TEST(SafeTensorsTest, RefusesToWriteANameTwiceOrAnUnknownType) {
  const Tensor x = torch::ones({1});
  EXPECT_NE(error_of([&] { safetensors_bytes({{"x", x}, {"x", x}}); }), "no error");
  EXPECT_NE(error_of([&] { safetensors_bytes({{"__metadata__", x}}); }), "no error");
  EXPECT_NE(error_of([&] { safetensors_bytes({{"x", x.to(torch::kComplexFloat)}}); }), "no error");
}

}  // namespace
}  // namespace keel::lab
