#include "lab/storage/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <system_error>
#include <utility>

#include "keel/error.h"

namespace keel::lab {
namespace {

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

/// Where the bytes meant for a path go: first to `unfinished`, which then becomes `file`.
struct Target {
  std::filesystem::path file, unfinished;
};

Target target_of(const std::filesystem::path& given) {
  // Renaming would replace a link itself, or, for root, even a device such as /dev/null.
  std::error_code dangling;
  std::filesystem::path file = given;
  if (std::filesystem::is_symlink(given)) file = std::filesystem::canonical(given, dangling);
  if (dangling) file = given;
  struct stat about {};
  if (::stat(file.c_str(), &about) == 0 && !S_ISREG(about.st_mode) && !S_ISDIR(about.st_mode))
    fail("cannot write to " + kind(about.st_mode) + ", ", given, ENOTSUP);
  std::filesystem::path unfinished = file;
  unfinished += kUnfinished;
  return {file, unfinished};
}

}  // namespace

void check_writable(const std::filesystem::path& given) {
  const auto [file, unfinished] = target_of(given);
  if (std::filesystem::is_directory(file)) fail("cannot write ", file, EISDIR);
  const bool there = std::filesystem::exists(unfinished);
  const Descriptor out(unfinished, O_WRONLY | O_CREAT);
  if (!out.opened()) fail("cannot create ", unfinished, errno);
  if (!there) ::unlink(unfinished.c_str());
}

void write_file_atomically(const std::filesystem::path& given, const std::string& bytes) {
  const auto [file, unfinished] = target_of(given);
  int error = 0;
  {
    Descriptor out(unfinished, O_WRONLY | O_CREAT | O_TRUNC);
    if (!out.opened()) fail("cannot create ", unfinished, errno);
    // fsync before rename. Otherwise a power cut could leave the new name without content.
    if (!write_all(out.number(), bytes) || ::fsync(out.number()) != 0 || !out.close())
      error = errno;
  }
  if (error == 0 && ::rename(unfinished.c_str(), file.c_str()) != 0) error = errno;
  if (error != 0) {
    ::unlink(unfinished.c_str());
    fail("cannot write ", file, error);
  }
  const auto folder = file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
  const Descriptor entries(folder, O_RDONLY | O_DIRECTORY);
  if (entries.opened()) ::fsync(entries.number());  // may be unsupported, but the data is safe
}

std::string read_file(const std::filesystem::path& file, std::uintmax_t most) {
  const auto cannot = [&](const std::string& doing, const std::string& why) {
    return Error(doing + file.string() + ": " + why);
  };
  const Descriptor in(file, O_RDONLY | O_NONBLOCK);  // otherwise opening a pipe waits for a writer
  if (!in.opened()) throw cannot("cannot open ", std::strerror(errno));
  struct stat about {};
  if (::fstat(in.number(), &about) != 0) throw cannot("cannot open ", std::strerror(errno));
  if (!S_ISREG(about.st_mode))
    throw cannot("cannot read ", "expected a regular file, got " + kind(about.st_mode));
  const auto too_long = [&](std::uintmax_t size) {
    return cannot("cannot read ", "expected at most " + std::to_string(most) + " bytes, got " +
                                      std::to_string(size));
  };
  if (std::uintmax_t(about.st_size) > most) throw too_long(std::uintmax_t(about.st_size));
  try {
    std::string bytes(std::size_t(about.st_size) + 1, '\0');  // one more, to detect the end at once
    std::size_t done = 0;
    while (true) {
      if (done == bytes.size()) bytes.resize(2 * done);  // the file has grown
      const ssize_t now = ::read(in.number(), bytes.data() + done, bytes.size() - done);
      if (now < 0 && errno == EINTR) continue;
      if (now < 0) throw cannot("cannot read ", std::strerror(errno));
      done += std::size_t(now);
      if (done > most) throw too_long(done);
      if (now > 0) continue;
      bytes.resize(done);
      return bytes;
    }
  } catch (const std::bad_alloc&) {
    throw cannot("cannot read ",
                 "memory does not hold its " + std::to_string(about.st_size) + " bytes");
  }
}

}  // namespace keel::lab
