#include "lab/storage/folder_claim.h"

#include <gtest/gtest.h>

#include <fstream>

#include "lab/tests/train/support.h"

namespace keel::lab {
namespace {

namespace fs = std::filesystem;
using test::error_of;

TEST(FolderClaimTest, IsForOneAtATime) {
  const test::Folder folder;
  const fs::path run = folder.path / "a" / "run";
  {
    const FolderClaim first(run, "in use");
    EXPECT_EQ(error_of([&] { FolderClaim(run, "in use"); }), "in use");
    EXPECT_EQ(error_of([&] { FolderClaim(run / "", "in use"); }), "in use");
    const FolderClaim other(folder.path / "a" / "other", "in use");
    std::ofstream(run / "file") << "x";
  }
  EXPECT_EQ(error_of([&] { FolderClaim(run, "in use"); }), "no keel::Error");
  EXPECT_TRUE(fs::exists(run / "file"));
  EXPECT_FALSE(fs::exists(folder.path / "a" / "other"));  // made by the claim, and never used
}

TEST(FolderClaimTest, AFolderThatWasThereStays) {
  const test::Folder folder;
  { const FolderClaim claim(folder.path, "in use"); }
  EXPECT_TRUE(fs::exists(folder.path));
}

TEST(FolderClaimTest, NewFoldersHaveNamesOfTheirOwn) {
  const test::Folder folder;
  const auto a = FolderClaim::on_new(folder.path / "run"),
             b = FolderClaim::on_new(folder.path / "run"),
             c = FolderClaim::on_new(folder.path / "run");
  EXPECT_EQ(a.path(), folder.path / "run");
  EXPECT_EQ(b.path(), folder.path / "run-2");
  EXPECT_EQ(c.path(), folder.path / "run-3");
}

TEST(FolderClaimTest, SaysWhatCannotBeAFolder) {
  const test::Folder folder;
  std::ofstream(folder.path / "file") << "x";
  const std::string said = error_of([&] { FolderClaim(folder.path / "file", "in use"); });
  EXPECT_EQ(said, "keel: expected a folder to write to, got " + (folder.path / "file").string() +
                      ": Not a directory");
}

}  // namespace
}  // namespace keel::lab
