#include "lab/storage/files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <vector>

#include "lab/storage/own_files.h"
#include "support/errors.h"
#include "support/files.h"

namespace keel::lab {
namespace {

using keel::testing::refuses;
using keel::testing::TemporaryFolder;

TEST(Files, AWriteThatCannotBeNamesTheFileAndLeavesTheOldOne) {
  const TemporaryFolder folder;
  EXPECT_THROW(write_file_atomically(folder / "no/such/folder", "x"), std::system_error);
  write_file_atomically(folder / "file", "old");
  write_file_atomically(folder / "file", "new");
  EXPECT_EQ(read_file(folder / "file"), "new");
  std::filesystem::create_directories(folder / "taken/inside");
  EXPECT_THROW(write_file_atomically(folder / "taken", "x"), std::system_error);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 2);
}

TEST(Files, WritingReplacesNoLinkAndNoPipe) {
  const TemporaryFolder folder;
  write_file_atomically(folder / "file", "old");
  std::filesystem::create_symlink("file", folder / "link");
  write_file_atomically(folder / "link", "new");
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_EQ(read_file(folder / "file"), "new");
  // Stands for a device, which a failing test would remove from the system.
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  std::filesystem::create_symlink("pipe", folder / "to pipe");
  for (const char* name : {"pipe", "to pipe"})
    EXPECT_THROW(write_file_atomically(folder / name, "x"), std::system_error) << name;
  EXPECT_TRUE(std::filesystem::is_fifo(folder / "pipe"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 4);
}

TEST(Files, WhetherAFileCanBeWrittenIsKnownBeforeAndChangesNothing) {
  const TemporaryFolder folder;
  write_file_atomically(folder / "file", "old");
  check_writable(folder / "file");
  check_writable(folder / "new");
  EXPECT_EQ(read_file(folder / "file"), "old");
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  for (const char* name : {"", "pipe", "no/such/folder"})
    EXPECT_THROW(check_writable(folder / name), std::system_error) << name;
  write_file_atomically(folder / "other.unfinished", "of another process");
  check_writable(folder / "other");
  EXPECT_EQ(read_file(folder / "other.unfinished"), "of another process");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 3);
}

// Anybody who may write to the folder can place links in it.
TEST(Files, NoLinkIsFollowedOnTheWayToAFile) {
  const TemporaryFolder folder;
  write_file_atomically(folder / "mine", "mine");
  std::filesystem::create_symlink("mine", folder / "page.unfinished");
  std::filesystem::create_symlink("mine", folder / "page");
  replace_file(folder / "page", "new");
  EXPECT_FALSE(std::filesystem::is_symlink(folder / "page"));
  EXPECT_EQ(read_file(folder / "page"), "new");
  check_writable(folder / "page");
  EXPECT_EQ(read_file(folder / "mine"), "mine");
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "page.unfinished"));
  std::filesystem::create_symlink("mine", folder / "log");
  EXPECT_EQ(LogFile(folder / "log").error(), ELOOP);
  std::filesystem::create_symlink("nowhere", folder / "dangling");
  EXPECT_THROW(write_file_atomically(folder / "dangling", "x"), std::system_error);
  EXPECT_FALSE(std::filesystem::exists(folder / "nowhere"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 5);
}

TEST(OwnFilesTest, ADamagedListInsideIsAnErrorBeforeAnythingIsRemoved) {
  namespace fs = std::filesystem;
  const TemporaryFolder folder;
  const fs::path run = folder / "run";
  OwnFiles own(run);
  own.begin();
  own.add({"config.toml", "inside"});
  replace_file(run / "config.toml", "");
  OwnFiles(run / "inside").begin();
  replace_file(run / "inside" / OwnFiles::kName, "not a list\n");
  EXPECT_TRUE(refuses({"inside"}, [&] { OwnFiles(run).remove_all("config.toml"); }));
  EXPECT_TRUE(fs::exists(run / "config.toml"));
}

TEST(OwnFilesTest, OnlyWhatIsListedIsWrittenAndRemoved) {
  namespace fs = std::filesystem;
  const TemporaryFolder folder;
  const auto run = folder / "run";
  OwnFiles own(run);
  EXPECT_FALSE(own.listed());
  EXPECT_THROW(own.add({"a"}), std::system_error);
  own.begin();
  own.add({"a", "inside"});
  write_file_atomically(run / "a", "ours");
  OwnFiles inside(run / "inside");
  inside.begin();
  inside.add({"b"});
  write_file_atomically(run / "inside/b", "ours");
  write_file_atomically(run / "c", "theirs");
  fs::create_symlink("c", run / "link");
  for (const char* name : {"c", "link"}) {
    EXPECT_THROW(OwnFiles(run).add({name}), std::system_error) << name;
    EXPECT_TRUE(refuses({name}, [&] { OwnFiles(run).check({name}); })) << name;
  }
  // A link in the place of what we wrote.
  fs::remove(run / "a");
  fs::create_symlink("c", run / "a");
  EXPECT_THROW(OwnFiles(run).add({"a"}), std::system_error);
  write_file_atomically(run / "inside/d", "theirs");
  OwnFiles(run).remove_all("a");
  EXPECT_FALSE(fs::exists(fs::symlink_status(run / "a")));
  EXPECT_FALSE(fs::exists(run / "inside/b"));
  EXPECT_EQ(read_file(run / "c"), "theirs");
  EXPECT_EQ(read_file(run / "inside/d"), "theirs");
  EXPECT_TRUE(OwnFiles(run).has("inside"));  // it stays, for their file in it
  fs::remove(run / "inside/d");
  OwnFiles(run).remove_all();
  EXPECT_FALSE(fs::exists(run / "inside"));
  EXPECT_TRUE(OwnFiles(run).listed());
  EXPECT_TRUE(OwnFiles(run).empty());
}

// A run folder may come from anywhere.
TEST(OwnFilesTest, AListReachesNoOtherFolder) {
  namespace fs = std::filesystem;
  const TemporaryFolder folder;
  OwnFiles(folder / "run").begin();
  const std::string good = read_file(folder / "run" / OwnFiles::kName);
  for (const char* name : {"..", ".", "", "../other", "/etc/passwd"}) {
    replace_file(folder / "run" / OwnFiles::kName, good + name + "\n");
    EXPECT_TRUE(refuses({"expected names of files in this folder"}, [&] {
      OwnFiles(folder / "run");
    })) << name;
  }
  replace_file(folder / "run" / OwnFiles::kName, "thesis.txt\n");
  EXPECT_TRUE(refuses({"expected a list of keel's"}, [&] { OwnFiles(folder / "run"); }));
  OwnFiles other(folder / "other");
  other.begin();
  other.add({"b"});
  write_file_atomically(folder / "other/b", "theirs");
  replace_file(folder / "run" / OwnFiles::kName, good + "inside\n");
  fs::create_directory_symlink(folder / "other", folder / "run/inside");
  OwnFiles(folder / "run").remove_all();
  EXPECT_EQ(read_file(folder / "other/b"), "theirs");
}

TEST(OwnFilesTest, WhatAKilledWriterLeftIsCleared) {
  const TemporaryFolder folder;
  OwnFiles own(folder.path());
  EXPECT_TRUE(is_empty_folder(folder.path()));
  EXPECT_TRUE(is_empty_folder(folder / "absent"));
  write_file_atomically(folder / ".keel-files.0123456789abcdef.unfinished", "");
  EXPECT_TRUE(is_empty_folder(folder.path()));
  own.begin();
  EXPECT_FALSE(is_empty_folder(folder.path()));
  own.add({"a"});
  for (const char* name : {"a.0123456789abcdef.unfinished", "b.0123456789abcdef.unfinished",
                           "a.0123456789abcdeX.unfinished", "a.unfinished"})
    write_file_atomically(folder / name, "");
  own.clean();
  std::vector<std::string> left;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    left.push_back(entry.path().filename().string());
  std::ranges::sort(left);
  EXPECT_EQ(left, (std::vector<std::string>{".keel-files", "a.0123456789abcdeX.unfinished",
                                            "a.unfinished", "b.0123456789abcdef.unfinished"}));
}

TEST(Files, WhatIsReadIsWhatWasWritten) {
  const TemporaryFolder folder;
  for (const std::size_t size : {0, 1, 4095, 4096, 3'000'000}) {
    std::string bytes(size, '\0');
    for (std::size_t i = 0; i < size; ++i) bytes[i] = char(i * 7 + i / 251);
    write_file_atomically(folder / "file", bytes);
    EXPECT_EQ(read_file(folder / "file"), bytes) << size;
  }
}

// Reading a pipe without a writer would block forever, and /dev/zero never ends.
TEST(Files, OnlyRegularFilesAreRead) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_TRUE(refuses({"pipe", "expected a regular file, got a pipe"},
                      [&] { read_file(folder / "pipe"); }));
  EXPECT_TRUE(refuses({folder.path().string(), "expected a regular file, got a folder"},
                      [&] { read_file(folder.path()); }));
  EXPECT_TRUE(refuses({"/dev/zero", "got a device"}, [&] { read_file("/dev/zero"); }));
  EXPECT_TRUE(refuses({"absent", "No such file"}, [&] { read_file(folder / "absent"); }));
  std::filesystem::create_symlink(folder / "pipe", folder / "link");
  EXPECT_TRUE(refuses({"link", "got a pipe"}, [&] { read_file(folder / "link"); }));
  for (const auto& [file, code] :
       {std::pair(folder / "absent", ENOENT), {folder.path(), ENOTSUP}}) {
    try {
      read_file(file);
      ADD_FAILURE();
    } catch (const Unreadable& error) {
      EXPECT_EQ(error.code, code);
    }
  }
}

TEST(Files, AFileLongerThanAskedForIsNotRead) {
  const TemporaryFolder folder;
  write_file_atomically(folder / "file", "12345");
  EXPECT_EQ(read_file(folder / "file", 5), "12345");
  EXPECT_TRUE(refuses({"expected at most 4 bytes, got 5"}, [&] { read_file(folder / "file", 4); }));
  // A sparse file: it has no byte on disk, and none may be allocated in memory.
  std::filesystem::resize_file(folder / "file", std::uintmax_t{1} << 40);
  EXPECT_TRUE(refuses({"expected at most 1000 bytes"}, [&] { read_file(folder / "file", 1000); }));
}

}  // namespace
}  // namespace keel::lab
