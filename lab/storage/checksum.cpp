#include "lab/storage/checksum.h"

#include <zlib.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>

namespace keel::lab {
namespace {

using State = std::array<std::uint32_t, 4>;
constexpr std::size_t kBlock = 64;

/// floor(2^32 |sin(i + 1)|), as the RFC defines them.
std::array<std::uint32_t, 64> make_sines() {
  std::array<std::uint32_t, 64> sines{};
  for (std::size_t i = 0; i < sines.size(); ++i)
    sines[i] = std::uint32_t(std::floor(0x1p32 * std::fabs(std::sin(double(i + 1)))));
  return sines;
}

std::uint32_t little_endian(const unsigned char* at) {
  return std::uint32_t(at[0]) | std::uint32_t(at[1]) << 8 | std::uint32_t(at[2]) << 16 |
         std::uint32_t(at[3]) << 24;
}

void add_block(State& state, const unsigned char* block) {
  static const std::array<std::uint32_t, 64> sines = make_sines();
  static constexpr int kTurns[4][4] = {
      {7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}};
  auto [a, b, c, d] = state;
  for (std::size_t i = 0; i < 64; ++i) {
    std::uint32_t mixed = 0;
    std::size_t word = 0;
    switch (i / 16) {
      case 0:
        mixed = (b & c) | (~b & d), word = i;
        break;
      case 1:
        mixed = (b & d) | (c & ~d), word = 5 * i + 1;
        break;
      case 2:
        mixed = b ^ c ^ d, word = 3 * i + 5;
        break;
      default:
        mixed = c ^ (b | ~d), word = 7 * i;
    }
    const std::uint32_t sum = a + mixed + sines[i] + little_endian(block + 4 * (word % 16));
    a = d, d = c, c = b;
    b += std::rotl(sum, kTurns[i / 16][i % 4]);
  }
  const State after{a, b, c, d};
  for (std::size_t i = 0; i < 4; ++i) state[i] += after[i];
}

}  // namespace

std::uint32_t crc32(std::string_view bytes) {
  const auto* data = reinterpret_cast<const Bytef*>(bytes.data());
  return std::uint32_t(::crc32_z(/*crc=*/0, data, bytes.size()));
}

std::string md5(std::string_view bytes) {
  State state{0x67452301u, 0xefcdab89u, 0x98badcfeu, 0x10325476u};
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  std::size_t left = bytes.size();
  for (; left >= kBlock; data += kBlock, left -= kBlock) add_block(state, data);
  // The remaining bytes, a one bit, zeros, and the length in bits.
  unsigned char last[2 * kBlock] = {};
  if (left > 0) std::memcpy(last, data, left);
  last[left] = 0x80;
  const std::size_t end = left + 9 <= kBlock ? kBlock : 2 * kBlock;
  const std::uint64_t bits = 8 * std::uint64_t(bytes.size());
  for (std::size_t i = 0; i < 8; ++i)
    last[end - 8 + i] = static_cast<unsigned char>(bits >> (8 * i));
  for (std::size_t at = 0; at < end; at += kBlock) add_block(state, last + at);
  std::string text;
  for (const std::uint32_t word : state)
    for (int shift = 0; shift < 32; shift += 8) {
      text += "0123456789abcdef"[word >> (shift + 4) & 15];
      text += "0123456789abcdef"[word >> shift & 15];
    }
  return text;
}

}  // namespace keel::lab
