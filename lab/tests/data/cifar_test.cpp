#include <sys/stat.h>

#include "lab/data/data_set.h"

#include <gtest/gtest.h>
#include "support/errors.h"
#include "support/files.h"

namespace keel::lab {
namespace {

using keel::testing::read_bytes;
using keel::testing::refuses;
using keel::testing::TemporaryFolder;
using keel::testing::write_bytes;

constexpr std::int64_t kPixels = 3 * 32 * 32;

char pixel(std::int64_t record, std::int64_t place) {
  return char((record * 31 + place * 7) % 251);
}

std::string records(std::int64_t first, std::int64_t count, std::int64_t classes) {
  std::string bytes;
  for (std::int64_t r = first; r < first + count; ++r) {
    if (classes == 100) bytes.push_back(char(r % 20));
    bytes.push_back(char(r % classes));
    for (std::int64_t k = 0; k < kPixels; ++k) bytes.push_back(pixel(r, k));
  }
  return bytes;
}

/// Five batches of 20 and a test batch of 10.
void write_cifar10(const std::filesystem::path& folder) {
  for (int i = 0; i < 5; ++i)
    write_bytes(folder / ("data_batch_" + std::to_string(i + 1) + ".bin"), records(i * 20, 20, 10));
  write_bytes(folder / "test_batch.bin", records(1000, 10, 10));
  write_bytes(folder / "batches.meta.txt",
              "airplane\nautomobile\nbird\ncat\ndeer\ndog\nfrog\nhorse\nship\ntruck\n\n");
}

DataOptions options_for(const std::string& source, const std::filesystem::path& path) {
  DataOptions options;
  options.source = source;
  options.path = path;
  return options;
}

// Labels of other data are matched by class names.
TEST(Cifar, TwoClassesOfOneNameAreRefused) {
  const TemporaryFolder folder;
  write_cifar10(folder.path());
  write_bytes(folder / "batches.meta.txt",
              "airplane\nautomobile\nbird\ncat\ndeer\ndog\nfrog\ncat\nship\ntruck\n");
  EXPECT_TRUE(refuses({folder.path().string(),
                       "expected classes of different names, got 'cat' for classes 3 and 7"},
                      [&] { load(options_for("cifar10", folder.path())); }));
}

TEST(Cifar, ReadsTheRecordsInOrder) {
  const TemporaryFolder folder;
  write_cifar10(folder / "cifar-10-batches-bin");
  for (const auto& path : {folder.path(), folder / "cifar-10-batches-bin"}) {
    const DataSet data = load(options_for("cifar10", path));
    EXPECT_EQ(data.name, "CIFAR-10");
    ASSERT_EQ(data.train.pixels.sizes(), (std::vector<std::int64_t>{100, 3, 32, 32}));
    ASSERT_EQ(data.test.count(), 10);
    EXPECT_EQ(data.classes[3], "cat");
    EXPECT_EQ(data.mean[0], 0.4914);
    for (const std::int64_t r : {0, 19, 20, 63, 99}) {
      EXPECT_EQ(data.train.labels[r].item<std::int64_t>(), r % 10);
      for (const std::int64_t k : {0, 1, 32, 1024, 3071})
        EXPECT_EQ(char(data.train.pixels[r].flatten()[k].item<std::uint8_t>()), pixel(r, k));
    }
  }
}

TEST(Cifar, ReadsTheFineLabelsOfCifar100) {
  const TemporaryFolder folder;
  write_bytes(folder / "train.bin", records(0, 150, 100));
  write_bytes(folder / "test.bin", records(7, 5, 100));
  const DataSet data = load(options_for("cifar100", folder.path()));
  EXPECT_EQ(data.classes.size(), 100u);
  EXPECT_EQ(data.train.labels[142].item<std::int64_t>(), 42);
  EXPECT_EQ(data.test.labels[0].item<std::int64_t>(), 7);
  EXPECT_EQ(char(data.train.pixels[142].flatten()[9].item<std::uint8_t>()), pixel(142, 9));
  const auto values = data.train.pixels.to(torch::kDouble).div(255).select(1, 1);
  EXPECT_NEAR(data.mean[1], values.mean().item<double>(), 1e-12);
  EXPECT_NEAR(data.deviation[1], values.std(/*unbiased=*/false).item<double>(), 1e-12);
  // The byte of the coarse class is checked too: another one is no record of this set.
  std::string bytes = records(0, 3, 100);
  bytes[0] = char(20);
  write_bytes(folder / "train.bin", bytes);
  EXPECT_TRUE(refuses({"train.bin", "record 0 (byte 0): expected a label from 0 to 19, got 20"},
                      [&] { load(options_for("cifar100", folder.path())); }));
}

TEST(Cifar, LimitsTakeAsManyOfEachClass) {
  const TemporaryFolder folder;
  write_cifar10(folder.path());
  DataOptions options = options_for("cifar10", folder.path());
  options.train_limit = 25;
  options.size = 16;
  const DataSet data = load(options);
  ASSERT_EQ(data.train.pixels.sizes(), (std::vector<std::int64_t>{25, 3, 16, 16}));
  EXPECT_EQ(data.test.count(), 10);
  const auto counts = torch::bincount(data.train.labels, {}, 10);
  EXPECT_EQ(counts.min().item<std::int64_t>(), 2);
  EXPECT_EQ(counts.max().item<std::int64_t>(), 3);
  EXPECT_TRUE(torch::equal(load(options).train.pixels, data.train.pixels));
  options.seed = 1;
  EXPECT_FALSE(torch::equal(load(options).train.pixels, data.train.pixels));
}

TEST(Cifar, ErrorsNameFileAndPlace) {
  const auto check = [](const std::string& file, auto damage,
                        std::initializer_list<std::string> parts) {
    const TemporaryFolder folder;
    write_cifar10(folder.path());
    damage(folder / file);
    EXPECT_TRUE(refuses(parts, [&] { load(options_for("cifar10", folder.path())); }));
  };
  check(
      "data_batch_3.bin",
      [](const auto& file) { write_bytes(file, read_bytes(file).substr(0, 5 * 3073 + 100)); },
      {"data_batch_3.bin", "whole records of 3073 bytes", "record 5 is cut short after 100 bytes"});
  check("data_batch_2.bin",
        [](const auto& file) {
          std::string bytes = read_bytes(file);
          bytes[7 * 3073] = char(200);
          write_bytes(file, bytes);
        },
        {"data_batch_2.bin", "record 7 (byte 21511)", "label from 0 to 9, got 200"});
  check("test_batch.bin", [](const auto& file) { write_bytes(file, ""); },
        {"test_batch.bin", "an empty file"});
  check("data_batch_5.bin", [](const auto& file) { std::filesystem::remove(file); },
        {"data_batch_5.bin", "cannot open", "No such file"});
  check("data_batch_4.bin",
        [](const auto& file) {
          std::filesystem::remove(file);
          ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
        },
        {"data_batch_4.bin", "got a pipe"});
  check("batches.meta.txt", [](const auto& file) { write_bytes(file, "caf\xe9\n"); },
        {"batches.meta.txt", "names in UTF-8"});
  check("batches.meta.txt", [](const auto& file) { write_bytes(file, "cat\ndog\n"); },
        {"batches.meta.txt", "names of 10 classes, got 2"});
  EXPECT_TRUE(refuses({"/no/such/folder", "expected the folder with CIFAR-10's binary files"},
                      [] { load(options_for("cifar10", "/no/such/folder")); }));
}

TEST(DataOptions, AreChecked) {
  const auto check = [](DataOptions options, const std::string& part) {
    EXPECT_TRUE(refuses({"expected " + part}, [&] { load(options); }));
  };
  check({.source = "packed"}, "path, which source packed needs, got none");
  check({.size = 3}, "size from 4 to 1024, or 0, got 3");
  check({.size = 0}, "size >= 4 of synthetic images, got 0");
}

}  // namespace
}  // namespace keel::lab
