#pragma once

#include <cstdint>
#include <string_view>

namespace keel::lab {

/// CRC-32 as zlib, PNG and Python's zlib.crc32 have it.
std::uint32_t crc32(std::string_view bytes);

}  // namespace keel::lab
