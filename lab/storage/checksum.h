#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace keel::lab {

/// CRC-32 as zlib, PNG and Python's zlib.crc32 have it.
std::uint32_t crc32(std::string_view bytes);

/// MD5 (RFC 1321), as 32 small hexadecimal digits: what the makers of data sets publish beside their archives.
std::string md5(std::string_view bytes);

}  // namespace keel::lab
