#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <string>
#include <string_view>

#include "keel/error.h"

namespace keel::lab {

/// A file that cannot be read now: no permission, an I/O error, too little memory, too many open files. This says
/// nothing about its content.
class Unreadable : public Error {
 public:
  /// "DOING FILE: what the error number means".
  Unreadable(const std::string& doing, const std::filesystem::path& file, int error);
  Unreadable(const std::string& message, int error) : Error(message), code(error) {}
  int code;  ///< an errno
};

/// Replaces the file's content atomically. The new content is on disk when this returns. A link to a file stays, and
/// its target is replaced. Throws std::system_error that names the file, and leaves no partial file behind. Devices,
/// pipes and links to nothing are rejected.
void write_file_atomically(const std::filesystem::path& file, const std::string& bytes);

/// The same, but follows no link: it replaces the link. For files in folders that keel made.
void replace_file(const std::filesystem::path& file, const std::string& bytes);

/// An open file that grows. After the first failed write it takes no more.
class LogFile {
 public:
  /// Appends to the file, which must be there. Follows no link.
  explicit LogFile(const std::filesystem::path& file);
  ~LogFile();
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;

  void write(const std::string& bytes);
  int error() const { return error_; }  ///< of the first write that failed; 0 if none did

 private:
  int descriptor_ = -1, error_ = 0;
};

/// Throws keel::Error if a file is there that does not have `mark` in its first bytes: one that another program, or a
/// person, wrote.
void check_marked(const std::filesystem::path& file, const std::string& mark);

/// Throws what write_file_atomically would throw if it cannot write there now. For work that takes long before it has
/// something to write. The file itself stays as it is.
void check_writable(const std::filesystem::path& file);

/// A function that writes a file: the one above, or in tests one that simulates a full disk.
using WriteFile = std::function<void(const std::filesystem::path&, const std::string& bytes)>;

/// The lab reads every file with this. Throws Unreadable that names the file if it cannot be read or is not a regular
/// file (a pipe could block forever), and keel::Error if it has more than `most` bytes.
std::string read_file(const std::filesystem::path& file,
                      std::uintmax_t most = std::numeric_limits<std::uintmax_t>::max());

/// The first bytes of a file, at most `count`, and the size of all of it. Throws as read_file().
struct Beginning {
  std::string bytes;
  std::uintmax_t size = 0;
};
Beginning read_beginning(const std::filesystem::path& file, std::size_t count);

/// CRC-32 as in zlib, PNG and Python's zlib.crc32.
std::uint32_t crc32(std::string_view bytes);

/// What a killed writer of FILE leaves behind is FILE.XXXXXXXXXXXXXXXX.unfinished, with random letters, so that nobody
/// can place a link there.
inline constexpr const char* kUnfinished = ".unfinished";
inline constexpr std::size_t kRandomLetters = 16;

}  // namespace keel::lab
