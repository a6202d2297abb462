#include "lab/storage/checksum.h"

#include <array>
#include <cstddef>

namespace keel::lab {
namespace {

using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

/// Table k advances a byte's remainder by k more bytes, so that eight bytes are processed at once.
constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t remainder = byte;
    for (int bit = 0; bit < 8; ++bit)
      remainder = (remainder >> 1) ^ (remainder & 1 ? 0xedb88320u : 0u);
    tables[0][byte] = remainder;
  }
  for (std::size_t k = 1; k < 8; ++k)
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = tables[k - 1][byte];
      tables[k][byte] = (before >> 8) ^ tables[0][before & 0xff];
    }
  return tables;
}

constexpr Tables kTables = make_tables();

}  // namespace

std::uint32_t crc32(std::string_view bytes) {
  const auto* at = reinterpret_cast<const unsigned char*>(bytes.data());
  std::size_t left = bytes.size();
  std::uint32_t sum = 0xffffffffu;
  for (; left >= 8; at += 8, left -= 8)
    sum = kTables[7][(sum ^ at[0]) & 0xff] ^ kTables[6][((sum >> 8) ^ at[1]) & 0xff] ^
          kTables[5][((sum >> 16) ^ at[2]) & 0xff] ^ kTables[4][(sum >> 24) ^ at[3]] ^
          kTables[3][at[4]] ^ kTables[2][at[5]] ^ kTables[1][at[6]] ^ kTables[0][at[7]];
  for (; left > 0; ++at, --left) sum = (sum >> 8) ^ kTables[0][(sum ^ *at) & 0xff];
  return ~sum;
}

}  // namespace keel::lab
