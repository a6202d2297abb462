#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <string>

namespace keel::lab {

/// The file's new content is on the disk when this returns; until then the old one is. Throws
/// std::system_error naming the file, and leaves nothing half-written behind.
void write_file_atomically(const std::filesystem::path& file, const std::string& bytes);

/// What writes a file: the above, or in tests a disk that is full.
using WriteFile = std::function<void(const std::filesystem::path&, const std::string& bytes)>;

/// The one way the lab opens a file to read it. Throws keel::Error naming the file: where it cannot be
/// read, where it is no regular file (a pipe would be waited for without end), and where it has more
/// than `most` bytes.
std::string read_file(const std::filesystem::path& file,
                      std::uintmax_t most = std::numeric_limits<std::uintmax_t>::max());

/// What an interrupted write_file_atomically leaves behind ends in this.
inline constexpr const char* kUnfinished = ".unfinished";

}  // namespace keel::lab
