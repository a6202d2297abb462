#include "lab/storage/folder_claim.h"

#include <gtest/gtest.h>

#include <fstream>

#include "lab/tests/train/support.h"

namespace keel::lab {
namespace {

namespace fs = std::filesystem;
using test::error_of;

TEST(FolderClaimTest, IsForOneAtATime) {
  const test::TemporaryFolder folder;
  const fs::path run = folder / "a" / "run";
  const auto claim = [](const fs::path& path) {
    return error_of([&] { FolderClaim(path, "in use"); });
  };
  {
    const FolderClaim first(run, "in use");
    EXPECT_EQ(claim(run), "in use");
    EXPECT_EQ(claim(run / ""), "in use");
    const FolderClaim other(folder / "a" / "other", "in use");
    std::ofstream(run / "file") << "x";
  }
  EXPECT_EQ(claim(run), "no error");
  EXPECT_TRUE(fs::exists(run / "file"));
  EXPECT_FALSE(fs::exists(folder / "a" / "other"));  // made by the claim, and never used
  fs::remove(run / "file");
  EXPECT_EQ(claim(run), "no error");
  EXPECT_TRUE(fs::exists(run));  // it was there before
  const std::string said = "expected a folder to write to, got ";
  std::ofstream(folder / "file") << "x";
  EXPECT_EQ(claim(folder / "file"), said + (folder / "file").string() + ": Not a directory");
}

TEST(FolderClaimTest, NewFoldersHaveNamesOfTheirOwn) {
  const test::TemporaryFolder folder;
  fs::create_symlink("nowhere", folder / "run-2");
  const auto a = FolderClaim::on_new(folder / "run"), b = FolderClaim::on_new(folder / "run");
  EXPECT_EQ(a.path(), folder / "run");
  EXPECT_EQ(b.path(), folder / "run-3");
  EXPECT_EQ(error_of([&] { FolderClaim(b.path(), "in use"); }), "in use");
}

TEST(FolderClaimTest, AFolderThatWasReplacedMeanwhileStays) {
  const test::TemporaryFolder folder;
  {
    const FolderClaim claim(folder / "run", "in use");
    fs::rename(folder / "run", folder / "moved");
    fs::create_directory(folder / "run");
  }
  EXPECT_TRUE(fs::exists(folder / "run"));
}

// For mkdir() such a link exists, for open() it does not.
TEST(FolderClaimTest, ALinkToNothingIsRefused) {
  const test::TemporaryFolder folder;
  fs::create_symlink("nowhere", folder / "link");
  fs::create_symlink("loop", folder / "loop");
  fs::create_directory(folder / "real");
  fs::create_symlink("real", folder / "good");
  for (const char* name : {"link", "link/run", "loop"})
    EXPECT_NE(error_of([&] { FolderClaim(folder / name, "in use"); }), "no error") << name;
  EXPECT_EQ(error_of([&] { FolderClaim(folder / "good", "in use"); }), "no error");
}

}  // namespace
}  // namespace keel::lab
