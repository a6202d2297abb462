#pragma once

#include <zlib.h>

#include <cstdint>
#include <string_view>

namespace keel::lab {

/// CRC-32 as in zlib, PNG and Python's zlib.crc32.
inline std::uint32_t crc32(std::string_view bytes) {
  const auto* data = reinterpret_cast<const Bytef*>(bytes.data());
  return std::uint32_t(::crc32_z(/*crc=*/0, data, bytes.size()));
}

}  // namespace keel::lab
