#pragma once

// Archives built by hand, with content that no packer would write.

#include <cstdint>
#include <cstdio>
#include <string>

#include "lab/storage/checksum.h"

namespace keel::lab::testing {

constexpr std::size_t kTarBlock = 512;

/// Fixes the header's checksum, without which nothing is read.
inline void mend_header(std::string& tar, std::size_t at) {
  tar.replace(at + 148, 8, 8, ' ');
  unsigned sum = 0;
  for (std::size_t i = 0; i < kTarBlock; ++i) sum += static_cast<unsigned char>(tar[at + i]);
  char digits[8];
  std::snprintf(digits, sizeof digits, "%06o", sum & 0777777u);
  tar.replace(at + 148, 7, digits, 7);
}

/// One entry. `type`: 0 a file, 1 a hard link, 2 a symbolic link, 5 a folder, 6 a pipe. `size` is written to the
/// header.
inline std::string tar_entry(const std::string& name, const std::string& content, char type = '0',
                             const std::string& link = "", std::uint64_t size = std::uint64_t(-1)) {
  std::string block(kTarBlock, '\0');
  char digits[13];
  if (size == std::uint64_t(-1)) size = content.size();
  std::snprintf(digits, sizeof digits, "%011llo", static_cast<unsigned long long>(size));
  block.replace(0, name.size(), name);
  block.replace(100, 7, "0000644");
  block.replace(124, 12, digits, 12);
  block[156] = type;
  block.replace(157, link.size(), link);
  block.replace(257, 8, "ustar\00000", 8);
  mend_header(block, 0);
  return block + content + std::string((kTarBlock - content.size() % kTarBlock) % kTarBlock, '\0');
}

inline std::string tar_end() { return std::string(2 * kTarBlock, '\0'); }

/// Wraps bytes as gzip without compression.
inline std::string gzipped(const std::string& bytes) {
  const auto little = [](std::uint32_t number, int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += char(number >> (8 * i));
    return text;
  };
  std::string out("\x1f\x8b\x08\0\0\0\0\0\0\x03", 10);
  constexpr std::size_t kMost = 65535;
  for (std::size_t at = 0; at == 0 || at < bytes.size(); at += kMost) {
    const std::string part = bytes.substr(at, kMost);
    const auto length = std::uint32_t(part.size());
    out +=
        (at + kMost >= bytes.size() ? '\1' : '\0') + little(length, 2) + little(~length, 2) + part;
  }
  return out + little(crc32(bytes), 4) + little(std::uint32_t(bytes.size()), 4);
}

}  // namespace keel::lab::testing
