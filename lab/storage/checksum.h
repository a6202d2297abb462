#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace keel::lab {

/// CRC-32 as in zlib, PNG and Python's zlib.crc32.
std::uint32_t crc32(std::string_view bytes);

/// MD5 (RFC 1321) as 32 lower-case hexadecimal digits. Authors of data sets publish it with their archives.
std::string md5(std::string_view bytes);

}  // namespace keel::lab
