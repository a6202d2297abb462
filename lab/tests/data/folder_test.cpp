#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>

#include "lab/data/sources.h"
#include "pictures.h"
#include "support/errors.h"
#include "support/files.h"

namespace keel::lab {
namespace {

namespace fs = std::filesystem;
using keel::testing::refuses;
using keel::testing::TemporaryFolder;
using keel::testing::write_bytes;

DataOptions options_for(const fs::path& path, std::int64_t size = 32) {
  DataOptions options;
  options.source = "folder";
  options.path = path;
  options.size = size;
  return options;
}

Image picture_of(int label, int number) { return smooth_picture(32, 32, label + 0.01 * number); }

/// `count` images for each class, every other one a PNG.
void write_classes(const fs::path& folder, const std::vector<std::string>& classes, int count) {
  for (int c = 0; c < int(classes.size()); ++c)
    for (int i = 0; i < count; ++i) {
      const Image image = picture_of(c, i);
      const fs::path stem = folder / classes[std::size_t(c)] / std::to_string(100 + i);
      if (i % 2)
        write_bytes(stem.string() + ".png", png(image));
      else
        write_bytes(stem.string() + ".JPG", jpeg(image));
    }
}

bool has_note(const DataSet& data, const std::string& part) {
  return std::any_of(data.notes.begin(), data.notes.end(),
                     [&](const std::string& note) { return note.find(part) != std::string::npos; });
}

TEST(Folder, ReadsTrainAndTest) {
  const TemporaryFolder folder;
  write_classes(folder / "train", {"ant", "bee", "cat"}, 6);
  write_classes(folder / "test", {"ant", "bee", "cat"}, 2);
  write_bytes(folder / "train/ant/.DS_Store", "x");
  std::int64_t last = 0, total = 0;
  const DataSet data =
      load(options_for(folder.path()),
           [&](const std::string&, auto done, auto all) { last = done, total = all; });
  EXPECT_EQ(last, 6);
  EXPECT_EQ(total, 6);
  EXPECT_EQ(data.classes, (std::vector<std::string>{"ant", "bee", "cat"}));
  ASSERT_EQ(data.train.pixels.sizes(), (std::vector<std::int64_t>{18, 3, 32, 32}));
  ASSERT_EQ(data.test.count(), 6);
  EXPECT_TRUE(data.notes.empty());
  for (int c = 0; c < 3; ++c)
    for (int i = 0; i < 6; ++i) {
      EXPECT_EQ(data.train.labels[c * 6 + i].item<std::int64_t>(), c);
      const Image image = picture_of(c, i);
      const auto expected =
          torch::tensor(image.pixels, torch::kUInt8).view({32, 32, 3}).permute({2, 0, 1});
      const auto off =
          (data.train.pixels[c * 6 + i].to(torch::kInt) - expected.to(torch::kInt)).abs();
      EXPECT_LE(off.max().item<int>(), i % 2 ? 0 : 6) << c << " " << i;
    }
}

TEST(Folder, SplitsClassesWithoutATestFolderAndSaysSo) {
  const TemporaryFolder folder;
  write_classes(folder.path(), {"ant", "bee"}, 20);
  const DataSet data = load(options_for(folder.path()));
  EXPECT_EQ(data.train.count(), 36);
  EXPECT_EQ(data.test.count(), 4);
  EXPECT_TRUE(torch::equal(torch::bincount(data.test.labels), torch::tensor({2, 2})));
  EXPECT_TRUE(has_note(data, "a tenth is kept for testing (36 to train on, 4 to test on)"));
  const DataSet again = load(options_for(folder.path()));
  EXPECT_TRUE(torch::equal(again.test.pixels, data.test.pixels));

  // No image is in both parts.
  const auto distance = (data.test.pixels.to(torch::kInt).flatten(1).unsqueeze(1) -
                         data.train.pixels.to(torch::kInt).flatten(1).unsqueeze(0))
                            .abs()
                            .sum(-1);
  EXPECT_GT(distance.min().item<std::int64_t>(), 0);

  // A new file leaves the split of the other class unchanged.
  write_bytes(folder / "ant/zzz.png", png(picture_of(0, 77)));
  const DataSet more = load(options_for(folder.path()));
  EXPECT_EQ(more.train.count() + more.test.count(), 41);
  EXPECT_TRUE(torch::equal(more.test.pixels.narrow(0, 2, 2), data.test.pixels.narrow(0, 2, 2)));
}

TEST(Folder, ScalesWhatHasAnotherSizeAndSaysSo) {
  const TemporaryFolder folder;
  write_classes(folder / "train", {"ant", "bee"}, 2);
  write_classes(folder / "val", {"ant", "bee"}, 2);
  write_bytes(folder / "train/ant/wide.png", png(smooth_picture(40, 90)));
  const DataSet data = load(options_for(folder.path()));
  EXPECT_EQ(data.train.pixels.sizes(), (std::vector<std::int64_t>{5, 3, 32, 32}));
  EXPECT_TRUE(has_note(data, "images of 2 sizes were scaled to 32 x 32"));
  const Image wide = smooth_picture(40, 90);
  EXPECT_TRUE(torch::equal(data.train.pixels[2], squared(planes_of(wide).unsqueeze(0), 32)[0]));
}

TEST(Folder, TakesImagesAsTheyAreIfTheyAgree) {
  const TemporaryFolder folder;
  for (const char* part : {"train", "test"})
    for (const char* name : {"ant", "bee"})
      for (int i = 0; i < 2; ++i)
        write_bytes(folder.path() / part / name / (std::to_string(i) + ".png"),
                    png(smooth_picture(20, 30, i)));
  const DataSet data = load(options_for(folder.path(), 0));
  EXPECT_EQ(data.train.pixels.sizes(), (std::vector<std::int64_t>{4, 3, 20, 30}));
  write_bytes(folder / "train/bee/1.png", png(smooth_picture(20, 31)));
  EXPECT_TRUE(refuses({"train/bee/1.png", "expected 20 x 30 pixels as in ", "got 20 x 31"},
                      [&] { load(options_for(folder.path(), 0)); }));
}

TEST(Folder, ErrorsNameFileAndPlace) {
  const auto check = [](auto damage, std::initializer_list<std::string> parts) {
    const TemporaryFolder folder;
    write_classes(folder / "train", {"ant", "bee", "cat"}, 4);
    write_classes(folder / "test", {"ant", "bee", "cat"}, 2);
    damage(folder.path());
    EXPECT_TRUE(refuses(parts, [&] { load(options_for(folder.path())); }));
  };
  const std::string whole = jpeg(picture_of(0, 0));
  check([&](const fs::path& f) { write_bytes(f / "train/bee/102.JPG", whole.substr(0, 400)); },
        {"train/bee/102.JPG", "damaged JPEG"});
  check([&](const fs::path& f) { write_bytes(f / "test/cat/x.png", "hello"); },
        {"test/cat/x.png", "neither's"});
  check([](const fs::path& f) { ASSERT_EQ(::mkfifo((f / "test/bee/pipe.png").c_str(), 0600), 0); },
        {"test/bee/pipe.png", "expected a regular file, got a pipe"});
  // If two files are bad, the first one is always named.
  check(
      [&](const fs::path& f) {
        write_bytes(f / "train/cat/100.JPG", "hello");
        write_bytes(f / "train/ant/102.JPG", "hello");
      },
      {"train/ant/102.JPG"});
  check([](const fs::path& f) { fs::create_directories(f / "train/dog"); },
        {"test/dog", "expected a folder for this class"});
  check(
      [](const fs::path& f) {
        fs::create_directories(f / "train/dog");
        fs::create_directories(f / "test/dog");
      },
      {"train/dog", "found none"});
  check([](const fs::path& f) { write_classes(f / "test", {"dog"}, 1); },
        {"test/dog", "expected the classes of"});
  check([](const fs::path& f) { fs::remove_all(f / "test/bee"); },
        {"test/bee", "expected a folder for this class"});
  check(
      [](const fs::path& f) {
        fs::remove_all(f);
        fs::create_directories(f);
      },
      {"found no folders"});
  EXPECT_TRUE(refuses({"/no/such/folder", "expected a folder of classes"},
                      [] { load(options_for("/no/such/folder")); }));
  const TemporaryFolder outer;
  const fs::path latin = outer / "caf\xe9";  // the set's name is written to JSON
  write_classes(latin, {"ant", "bee"}, 2);
  EXPECT_TRUE(refuses({"caf\xe9", "name in UTF-8"}, [&] { load(options_for(latin)); }));
  const TemporaryFolder one;
  write_bytes(one / "ant/1.png", png(picture_of(0, 0)));
  EXPECT_TRUE(
      refuses({"ant", "at least 2 images of a class"}, [&] { load(options_for(one.path())); }));
}

TEST(Folder, SaysWhatItLeftOut) {
  const TemporaryFolder folder;
  write_classes(folder / "train", {"ant", "bee"}, 2);
  write_classes(folder / "test", {"ant", "bee"}, 2);
  write_bytes(folder / "train/bee/readme.txt", "hello");
  write_bytes(folder / "train/bee/more/1.png", png(picture_of(0, 0)));
  const DataSet data = load(options_for(folder.path()));
  EXPECT_EQ(data.train.count(), 4);
  EXPECT_TRUE(has_note(data, "2 files or folders"));
}

TEST(Folder, LimitsBeforeItDecodes) {
  const TemporaryFolder folder;
  write_classes(folder / "train", {"ant", "bee"}, 10);
  write_classes(folder / "test", {"ant", "bee"}, 4);
  DataOptions options = options_for(folder.path());
  options.train_limit = 6;
  options.test_limit = 2;
  std::int64_t most = 0;
  const DataSet data = load(options, [&](const std::string&, std::int64_t, std::int64_t total) {
    most = std::max(most, total);
  });
  EXPECT_EQ(most, 6);
  EXPECT_TRUE(torch::equal(torch::bincount(data.train.labels), torch::tensor({3, 3})));
  EXPECT_TRUE(torch::equal(torch::bincount(data.test.labels), torch::tensor({1, 1})));
}

}  // namespace
}  // namespace keel::lab
