// The input is the tar inside. This fixes the checksums of headers and gzip, which a mutation never gets right.

#include "lab/storage/archive.h"

#include "lab/tests/fuzz/fuzz.h"
#include "lab/tests/storage/tar.h"

namespace keel::fuzz::archive {

using namespace lab::testing;

/// Fixes the checksum of every block that looks like a header.
std::string mended(std::string tar) {
  for (std::size_t at = 0; at + kTarBlock <= tar.size(); at += kTarBlock)
    if (tar.compare(at + 257, 5, "ustar") == 0) mend_header(tar, at);
  return tar;
}

void attack(const std::string& bytes) {
  const lab::Wanted wanted{"set", {"a", "b"}, 1 << 16};
  std::size_t total = 0;
  for (const auto& [name, content] :
       lab::parse_tar_gz(gzipped(mended(bytes)), kHostile + ".tar.gz", wanted)) {
    expect(name == "a" || name == "b", "the wanted files alone");
    total += content.size();
  }
  expect(total <= std::size_t(wanted.most), "no more bytes than allowed");
}

std::vector<std::string> seeds() {
  const std::string a = tar_entry("set/a", "one"), b = tar_entry("./set/b", std::string(600, 'b'));
  // Extended headers as GNU and POSIX write them: a long name, and named fields.
  return {tar_entry("set/", "", '5') + a + b + tar_end(),
          tar_entry("././@LongLink", "set/a" + std::string(200, 'a'), 'L') + a + b,
          tar_entry("x", "14 path=set/a\n11 size=3\n", 'x') + a + b,
          a + tar_entry("set/l", "", '2', "/etc") + b, tar_entry("../c", "c") + a};
}

const Registration registration({"archive", attack, seeds});

}  // namespace keel::fuzz::archive
