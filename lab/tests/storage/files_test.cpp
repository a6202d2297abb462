#include "lab/storage/files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <system_error>
#include <vector>

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
