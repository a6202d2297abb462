#include "lab/storage/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <random>
#include <system_error>
#include <utility>

#include "keel/error.h"

namespace keel::lab {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& doing, const std::filesystem::path& file, int error) {
  throw std::system_error(error, std::generic_category(), doing + file.string());
}

/// A file descriptor that the destructor closes.
class Descriptor {
 public:
  Descriptor(const std::filesystem::path& file, int flags) {
    do number_ = ::open(file.c_str(), flags | O_CLOEXEC, 0666);
    while (number_ < 0 && errno == EINTR);
  }
  ~Descriptor() { close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  bool opened() const { return number_ >= 0; }
  int number() const { return number_; }
  bool close() {
    const int closing = std::exchange(number_, -1);
    return closing < 0 || ::close(closing) == 0;
  }

 private:
  int number_ = -1;
};

std::string kind(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

bool write_all(int descriptor, const std::string& bytes) {
  constexpr std::size_t kMost = std::size_t{1} << 30;  // Linux writes at most 2 GiB at once
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t now =
        ::write(descriptor, bytes.data() + done, std::min(bytes.size() - done, kMost));
    if (now < 0 && errno == EINTR) continue;
    if (now < 0) return false;
    done += std::size_t(now);
  }
  return true;
}

void require_no_device(const fs::path& file) {
  struct stat about {};
  if (::lstat(file.c_str(), &about) == 0 && !S_ISREG(about.st_mode) && !S_ISDIR(about.st_mode) &&
      !S_ISLNK(about.st_mode))
    fail("cannot write to " + kind(about.st_mode) + ", ", file, ENOTSUP);
}

/// The file itself, if the path is a link to it. Renaming would replace a link itself, or, for root, even a device such
/// as /dev/null.
fs::path target_of(const fs::path& given) {
  std::error_code dangling;
  fs::path file = given;
  if (fs::is_symlink(fs::symlink_status(given, dangling))) file = fs::canonical(given, dangling);
  if (dangling && dangling != std::errc::no_such_file_or_directory)
    fail("cannot write ", given, dangling.value());
  if (dangling && fs::is_symlink(fs::symlink_status(given, dangling)))
    fail("cannot write through a link to nothing, ", given, ENOENT);
  require_no_device(file);
  return file;
}

std::string random_letters() {
  std::random_device source;  // the system's, not a generator that somebody could follow
  std::string letters;
  while (letters.size() < kRandomLetters) letters += "0123456789abcdef"[source() & 15];
  return letters;
}

/// A new file beside `file`, open for writing, to be renamed to it. Its name is unused, and no link is followed.
struct TemporaryFile {
  explicit TemporaryFile(const fs::path& file)
      : path(file.string() + "." + random_letters() + kUnfinished),
        out(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW) {
    if (!out.opened()) fail("cannot create ", path, errno);
  }
  fs::path path;
  Descriptor out;
};

/// A regular file, open for reading.
struct Input {
  explicit Input(const fs::path& file)
      : descriptor(file, O_RDONLY | O_NONBLOCK) {  // otherwise opening a pipe waits for a writer
    struct stat about {};
    if (!descriptor.opened() || ::fstat(descriptor.number(), &about) != 0)
      throw Unreadable("cannot open ", file, errno);
    if (!S_ISREG(about.st_mode))
      throw Unreadable(
          "cannot read " + file.string() + ": expected a regular file, got " + kind(about.st_mode),
          ENOTSUP);
    size = std::uintmax_t(about.st_size);
  }
  Descriptor descriptor;
  std::uintmax_t size = 0;
};

}  // namespace

Unreadable::Unreadable(const std::string& doing, const fs::path& file, int error)
    : Unreadable(doing + file.string() + ": " + std::strerror(error), error) {}

std::uint32_t crc32(std::string_view bytes) {
  const auto* data = reinterpret_cast<const Bytef*>(bytes.data());
  return std::uint32_t(::crc32_z(/*crc=*/0, data, bytes.size()));
}

void check_writable(const fs::path& given) {
  const fs::path file = target_of(given);
  if (fs::is_directory(file)) fail("cannot write ", file, EISDIR);
  ::unlink(TemporaryFile(file).path.c_str());
}

void check_marked(const fs::path& file, const std::string& mark) {
  std::error_code absent;
  if (!fs::exists(file, absent) || fs::is_directory(file, absent)) return;
  const std::string first = read_beginning(file, 4096).bytes;
  require(first.find(mark) != first.npos,
          file.string() + " is there, and keel did not write it: move it, or name another file");
}

void write_file_atomically(const fs::path& given, const std::string& bytes) {
  replace_file(target_of(given), bytes);
}

void replace_file(const fs::path& file, const std::string& bytes) {
  int error = 0;
  require_no_device(file);
  TemporaryFile temporary(file);
  // fsync before rename. Otherwise a power cut could leave the new name without content.
  if (!write_all(temporary.out.number(), bytes) || ::fsync(temporary.out.number()) != 0 ||
      !temporary.out.close())
    error = errno;
  if (error == 0 && ::rename(temporary.path.c_str(), file.c_str()) != 0) error = errno;
  if (error != 0) {
    ::unlink(temporary.path.c_str());
    fail("cannot write ", file, error);
  }
  const auto folder = file.has_parent_path() ? file.parent_path() : fs::path(".");
  const Descriptor entries(folder, O_RDONLY | O_DIRECTORY);
  if (entries.opened()) ::fsync(entries.number());  // may be unsupported, but the data is safe
}

LogFile::LogFile(const fs::path& file) {
  descriptor_ = ::open(file.c_str(), O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) error_ = errno;
}

LogFile::~LogFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void LogFile::write(const std::string& bytes) {
  if (error_ == 0 && !write_all(descriptor_, bytes)) error_ = errno;
}

Beginning read_beginning(const fs::path& file, std::size_t count) {
  const Input in(file);
  Beginning result{std::string(count, '\0'), in.size};
  std::size_t done = 0;
  while (done < count) {
    const ssize_t now = ::read(in.descriptor.number(), result.bytes.data() + done, count - done);
    if (now < 0 && errno == EINTR) continue;
    if (now < 0) throw Unreadable("cannot read ", file, errno);
    if (now == 0) break;
    done += std::size_t(now);
  }
  result.bytes.resize(done);
  return result;
}

std::string read_file(const std::filesystem::path& file, std::uintmax_t most) {
  const auto cannot = [&](const std::string& doing, const std::string& why, int error) {
    return Unreadable(doing + file.string() + ": " + why, error);
  };
  const Input in(file);
  const auto too_long = [&](std::uintmax_t size) {
    return Error("cannot read " + file.string() + ": expected at most " + std::to_string(most) +
                 " bytes, got " + std::to_string(size));
  };
  if (in.size > most) throw too_long(in.size);
  try {
    std::string bytes(std::size_t(in.size) + 1, '\0');  // one more, to detect the end at once
    std::size_t done = 0;
    while (true) {
      if (done == bytes.size()) bytes.resize(2 * done);  // the file has grown
      const ssize_t now = ::read(in.descriptor.number(), bytes.data() + done, bytes.size() - done);
      if (now < 0 && errno == EINTR) continue;
      if (now < 0) throw Unreadable("cannot read ", file, errno);
      done += std::size_t(now);
      if (done > most) throw too_long(done);
      if (now > 0) continue;
      bytes.resize(done);
      return bytes;
    }
  } catch (const std::bad_alloc&) {
    throw cannot("cannot read ", "memory does not hold its " + std::to_string(in.size) + " bytes",
                 ENOMEM);
  }
}

}  // namespace keel::lab
