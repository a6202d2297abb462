#include "lab/storage/archive.h"

#include <gtest/gtest.h>

#include "lab/tests/storage/tar.h"
#include "support/errors.h"

namespace keel::lab {
namespace {

using keel::testing::refuses;
using testing::gzipped;
using testing::tar_end;
using testing::tar_entry;

const Wanted kWanted{"set", {"a.bin", "b.txt"}, 1 << 20};

std::map<std::string, std::string> parsed(const std::string& tar, const Wanted& wanted = kWanted) {
  return parse_tar_gz(gzipped(tar), "x.tar.gz", wanted);
}

std::string good(const std::string& prefix = "set/") {
  return tar_entry(prefix, "", '5') + tar_entry(prefix + "a.bin", std::string(3000, 'a')) +
         tar_entry(prefix + "readme", "other") + tar_entry(prefix + "b.txt", "");
}

TEST(Archive, GivesTheWantedFiles) {
  for (const char* prefix : {"set/", "./set/", "./././set/./"}) {
    const auto files = parsed(good(prefix) + tar_end());
    ASSERT_EQ(files.size(), 2u);
    EXPECT_EQ(files.at("a.bin"), std::string(3000, 'a'));
    EXPECT_EQ(files.at("b.txt"), "");
  }
  // Files of the same name in other folders are ignored.
  EXPECT_EQ(parsed(good() + tar_entry("set/more/a.bin", "x") + tar_entry("a.bin", "y")).size(), 2u);
}

TEST(Archive, RefusesWhatLeadsOutOfTheFolder) {
  const auto expect_refused = [](const std::string& entry, const std::string& part) {
    EXPECT_TRUE(refuses({"x.tar.gz", part}, [&] { parsed(good() + entry + tar_end()); }));
    EXPECT_TRUE(refuses({"x.tar.gz", part}, [&] { parsed(entry + good() + tar_end()); }));
  };
  for (const char* name : {"../x", "set/../../x", "/etc/x", "set/..", "..", "//x", "./../x"})
    expect_refused(tar_entry(name, "x"), "paths inside the archive's own folder, got");
  expect_refused(tar_entry("set/x", "", '2', "/etc"), "'set/x', a link to '/etc'");
  expect_refused(tar_entry("set/a.bin", "", '2', "b.txt"), "a link to 'b.txt'");
  expect_refused(tar_entry("set/x", "", '1', "set/a.bin"), "a link to 'set/a.bin'");
  for (const char type : {'3', '4', '6'})
    expect_refused(tar_entry("set/x", "", type), "a device or a pipe");
}

TEST(Archive, RefusesTooMuchBeforeItIsRead) {
  Wanted wanted = kWanted;
  wanted.most = 6000;
  EXPECT_EQ(parsed(good() + tar_end(), wanted).size(), 2u);
  wanted.most = 5000;
  EXPECT_TRUE(refuses({"at most 5000 bytes"}, [&] { parsed(good() + tar_end(), wanted); }));
  for (const std::uint64_t size : {std::uint64_t{1} << 20, std::uint64_t{077777777777}})
    EXPECT_TRUE(refuses({"at most 1048576 bytes"},
                        [&] { parsed(tar_entry("set/x", "x", '0', "", size) + good()); }));
  std::string crowd;  // no bytes, but many
  for (int i = 0; i < 2100; ++i) crowd += tar_entry("set/x", "");
  EXPECT_TRUE(refuses({"at most 1048576 bytes"}, [&] { parsed(crowd + good()); }));
}

TEST(Archive, RefusesWhatIsDamagedOrSomethingElse) {
  const std::string whole = gzipped(good() + tar_end());
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{20}, whole.size() / 2})
    EXPECT_TRUE(
        refuses({"x.tar.gz"}, [&] { parse_tar_gz(whole.substr(0, size), "x.tar.gz", kWanted); }));
  EXPECT_TRUE(refuses({"x.tar.gz", "expected a whole .tar.gz"},
                      [&] { parse_tar_gz("<html>no such file</html>", "x.tar.gz", kWanted); }));
  EXPECT_TRUE(refuses({"expected set/b.txt in it, got none"},
                      [&] { parsed(tar_entry("set/a.bin", "x") + tar_end()); }));
  EXPECT_TRUE(refuses({"expected one a.bin, got two"},
                      [&] { parsed(good() + tar_entry("set/a.bin", "y")); }));
  EXPECT_TRUE(refuses({"x.tar.gz"}, [&] {  // cut short within a file
    parsed(tar_entry("set/b.txt", "") + tar_entry("set/a.bin", "x", '0', "", 100000));
  }));
}

}  // namespace
}  // namespace keel::lab
