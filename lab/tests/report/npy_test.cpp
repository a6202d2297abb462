#include "lab/report/npy.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cstring>

#include "lab/tests/report/run_files.h"
#include "support/errors.h"

namespace keel::lab::report {
namespace {

using testing::TemporaryFolder;

/// Writes a file as numpy.save does, version 1.0.
std::string npy(const std::string& type, const std::string& order, const std::string& shape,
                const std::string& data) {
  std::string header =
      "{'descr': '" + type + "', 'fortran_order': " + order + ", 'shape': (" + shape + "), }";
  header.resize((10 + header.size() + 1 + 63) / 64 * 64 - 10 - 1, ' ');
  header += '\n';
  std::string out("\x93NUMPY\x01\x00", 8);
  out += char(header.size() & 0xFF);
  out += char(header.size() >> 8);
  return out + header + data;
}

template <typename T>
std::string bytes(const std::vector<T>& numbers) {
  std::string out(numbers.size() * sizeof(T), '\0');
  std::memcpy(out.data(), numbers.data(), out.size());
  return out;
}

torch::Tensor through(const std::string& content) {
  const TemporaryFolder folder;
  testing::write(folder / "m.npy", content);
  return read_npy(folder / "m.npy");
}

TEST(Npy, NumbersInBothOrders) {
  const auto expected = torch::tensor({{1., 2., 3.}, {4., 5., 6.}}, torch::kDouble);
  EXPECT_TRUE(
      through(npy("<f8", "False", "2, 3", bytes<double>({1, 2, 3, 4, 5, 6}))).equal(expected));
  EXPECT_TRUE(
      through(npy("<f4", "True", "2, 3", bytes<float>({1, 4, 2, 5, 3, 6}))).equal(expected));
  EXPECT_TRUE(through(npy("<i4", "False", "2, 3", bytes<int>({1, 2, 3, 4, 5, 6}))).equal(expected));
  EXPECT_TRUE(through(npy("<f8", "False", "3,", bytes<double>({1, 2, 3}))).equal(expected[0]));
}

TEST(Npy, WhatIsNotThereIsNotRead) {
  const auto good = npy("<f8", "False", "2, 2", bytes<double>({1, 2, 3, 4}));
  for (std::size_t size = 0; size < good.size(); ++size)
    EXPECT_THROW(through(good.substr(0, size)), Error) << size;
  EXPECT_THROW(through(good + "x"), Error);
  EXPECT_THROW(through(npy("<f8", "False", "9999999, 9999999, 9999999", "")), Error);
  // These have no elements, but LibTorch would still multiply the sizes.
  EXPECT_THROW(through(npy("<f8", "False", "0, 9999999, 9999999, 9999999", "")), Error);
  EXPECT_THROW(through(npy("<f8", "True", "9999999, 9999999, 0, 9999999", "")), Error);
  EXPECT_EQ(through(npy("<f8", "False", "3, 0", "")).numel(), 0);
  std::string axes;
  for (int i = 0; i < 3000; ++i) axes += "1, ";
  EXPECT_THROW(through(npy("<f8", "False", axes, bytes<double>({1}))), Error);
  EXPECT_THROW(through(npy("<f8", "Maybe", "1", bytes<double>({1}))), Error);
  EXPECT_THROW(through(npy("<f8", "False", "-1, 2", "")), Error);
  EXPECT_THROW(through(npy(">f8", "False", "1", bytes<double>({1}))), Error);
  EXPECT_THROW(through(npy("|O", "False", "1", bytes<double>({1}))), Error);  // pickled objects
}

TEST(Npy, TheErrorNamesTheFile) {
  EXPECT_TRUE(keel::testing::refuses({"/no/such/file.npy"}, [] { read_npy("/no/such/file.npy"); }));
}

}  // namespace
}  // namespace keel::lab::report
