#include "lab/storage/folder_claim.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <optional>
#include <utility>

#include "lab/tests/train/support.h"

namespace {

/// What another process does once, between our making a folder and our locking it.
std::function<void()> before_the_next_lock;

}  // namespace

/// Overrides libc's flock() in this program, so that the race has a known outcome.
extern "C" int flock(int descriptor, int operation) noexcept {
  if (const auto act = std::exchange(before_the_next_lock, nullptr)) act();
  return int(::syscall(SYS_flock, descriptor, operation));
}

namespace keel::lab {
namespace {

namespace fs = std::filesystem;
using test::error_of;

TEST(FolderClaimTest, IsForOneAtATime) {
  const test::TemporaryFolder folder;
  const fs::path run = folder / "a" / "run";
  {
    const FolderClaim first(run, "in use");
    EXPECT_EQ(error_of([&] { FolderClaim(run, "in use"); }), "in use");
    EXPECT_EQ(error_of([&] { FolderClaim(run / "", "in use"); }), "in use");
    const FolderClaim other(folder / "a" / "other", "in use");
    std::ofstream(run / "file") << "x";
  }
  EXPECT_EQ(error_of([&] { FolderClaim(run, "in use"); }), "no error");
  EXPECT_TRUE(fs::exists(run / "file"));
  EXPECT_FALSE(fs::exists(folder / "a" / "other"));  // made by the claim, and never used
}

TEST(FolderClaimTest, AFolderThatWasThereStays) {
  const test::TemporaryFolder folder;
  { const FolderClaim claim(folder.path(), "in use"); }
  EXPECT_TRUE(fs::exists(folder.path()));
}

TEST(FolderClaimTest, NewFoldersHaveNamesOfTheirOwn) {
  const test::TemporaryFolder folder;
  const auto a = FolderClaim::on_new(folder / "run"), b = FolderClaim::on_new(folder / "run"),
             c = FolderClaim::on_new(folder / "run");
  EXPECT_EQ(a.path(), folder / "run");
  EXPECT_EQ(b.path(), folder / "run-2");
  EXPECT_EQ(c.path(), folder / "run-3");
}

/// Holds the lock of a folder, as another process would.
class Other {
 public:
  explicit Other(const fs::path& folder)
      : descriptor_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    EXPECT_EQ(::syscall(SYS_flock, descriptor_, LOCK_EX | LOCK_NB), 0);
  }
  ~Other() { ::close(descriptor_); }

 private:
  int descriptor_;
};

TEST(FolderClaimTest, WhoeverIsQuickerWithTheLockKeepsTheFolder) {
  const test::TemporaryFolder folder;
  const fs::path run = folder / "run";
  std::optional<Other> other;
  before_the_next_lock = [&] { other.emplace(run); };
  EXPECT_EQ(error_of([&] { FolderClaim(run, "in use"); }), "in use");
  ASSERT_TRUE(other);
  EXPECT_TRUE(fs::exists(run));

  before_the_next_lock = [&] { other.emplace(folder / "new"); };
  const auto claim = FolderClaim::on_new(folder / "new");
  EXPECT_EQ(claim.path(), folder / "new-2");
  EXPECT_TRUE(fs::exists(folder / "new"));
}

TEST(FolderClaimTest, AFolderThatWasTakenAwayIsMadeAgain) {
  const test::TemporaryFolder folder;
  const fs::path run = folder / "run";
  before_the_next_lock = [&] { fs::remove(run); };
  {
    const FolderClaim claim(run, "in use");
    EXPECT_TRUE(fs::exists(run));
    EXPECT_EQ(error_of([&] { FolderClaim(run, "in use"); }), "in use");
  }
  EXPECT_FALSE(fs::exists(run));
}

TEST(FolderClaimTest, AFolderThatAnotherMadeUnderTheSameNameIsItsOwn) {
  const test::TemporaryFolder folder;
  const auto replace = [](const fs::path& run) {
    fs::remove(run);
    fs::create_directory(run);
  };
  before_the_next_lock = [&] { replace(folder / "new"); };
  {
    const auto claim = FolderClaim::on_new(folder / "new");
    EXPECT_EQ(claim.path(), folder / "new-2");
  }
  EXPECT_TRUE(fs::exists(folder / "new"));

  before_the_next_lock = [&] { replace(folder / "run"); };
  { const FolderClaim claim(folder / "run", "in use"); }
  EXPECT_TRUE(fs::exists(folder / "run"));
}

TEST(FolderClaimTest, SaysWhatCannotBeAFolder) {
  const test::TemporaryFolder folder;
  std::ofstream(folder / "file") << "x";
  const std::string said = error_of([&] { FolderClaim(folder / "file", "in use"); });
  EXPECT_EQ(said, "expected a folder to write to, got " + (folder / "file").string() +
                      ": Not a directory");
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
  EXPECT_EQ(
      error_of([&] { FolderClaim(folder / "link", "in use"); }),
      "expected a folder to write to, got " + (folder / "link").string() + ": a link to nothing");
  EXPECT_NE(error_of([&] { FolderClaim(folder / "link" / "run", "in use"); }), "no error");
  EXPECT_EQ(FolderClaim::on_new(folder / "link").path(), folder / "link-2");
  fs::create_symlink("loop", folder / "loop");
  EXPECT_NE(error_of([&] { FolderClaim(folder / "loop", "in use"); }), "no error");
  fs::create_directory(folder / "real");
  fs::create_symlink("real", folder / "good");
  EXPECT_EQ(error_of([&] { FolderClaim(folder / "good", "in use"); }), "no error");
}

}  // namespace
}  // namespace keel::lab
