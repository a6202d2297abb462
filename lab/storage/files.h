#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <string>

namespace keel::lab {

/// Replaces the file's content atomically. The new content is on disk when this returns. A link to a file stays, and
/// its target is replaced. Throws std::system_error that names the file, and leaves no partial file behind. Devices and
/// pipes are rejected.
void write_file_atomically(const std::filesystem::path& file, const std::string& bytes);

/// Throws what write_file_atomically would throw if it cannot write there now. For work that takes long before it has
/// something to write. The file itself stays as it is.
void check_writable(const std::filesystem::path& file);

/// A function that writes a file: the one above, or in tests one that simulates a full disk.
using WriteFile = std::function<void(const std::filesystem::path&, const std::string& bytes)>;

/// The lab reads every file with this. Throws keel::Error that names the file if it cannot be read, is not a regular file
/// (a pipe could block forever), or has more than `most` bytes.
std::string read_file(const std::filesystem::path& file,
                      std::uintmax_t most = std::numeric_limits<std::uintmax_t>::max());

/// The ending of files that an interrupted write_file_atomically leaves behind.
inline constexpr const char* kUnfinished = ".unfinished";

}  // namespace keel::lab
