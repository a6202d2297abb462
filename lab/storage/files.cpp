#include "lab/storage/files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <system_error>
#include <utility>

namespace keel::lab {
namespace {

[[noreturn]] void fail(const char* doing, const std::filesystem::path& file, int error) {
  throw std::system_error(error, std::generic_category(), std::string(doing) + file.string());
}

/// Closes at the latest when it goes.
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

bool write_all(int descriptor, const std::string& bytes) {
  constexpr std::size_t kMost = std::size_t{1} << 30;  // Linux writes no more than 2 GiB at once
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t now =
        ::write(descriptor, bytes.data() + done, std::min(bytes.size() - done, kMost));
    if (now < 0 && errno == EINTR) continue;
    if (now < 0) return false;
    done += std::size_t(now);
  }
  return true;
}

}  // namespace

void write_file_atomically(const std::filesystem::path& file, const std::string& bytes) {
  std::filesystem::path unfinished = file;
  unfinished += kUnfinished;
  int error = 0;
  {
    Descriptor out(unfinished, O_WRONLY | O_CREAT | O_TRUNC);
    if (!out.opened()) fail("cannot create ", unfinished, errno);
    // fsync before rename: else a power cut could leave the new name with no content.
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
  if (entries.opened()) ::fsync(entries.number());  // some file systems cannot; the data is safe
}

std::string read_file(const std::filesystem::path& file) {
  const Descriptor in(file, O_RDONLY);
  if (!in.opened()) fail("cannot open ", file, errno);
  std::string bytes;
  std::error_code unknown;
  const auto size = std::filesystem::file_size(file, unknown);
  if (!unknown) bytes.reserve(size);
  std::string piece(std::size_t{1} << 20, '\0');
  while (true) {
    const ssize_t now = ::read(in.number(), piece.data(), piece.size());
    if (now < 0 && errno == EINTR) continue;
    if (now < 0) fail("cannot read ", file, errno);
    if (now == 0) return bytes;
    bytes.append(piece, 0, std::size_t(now));
  }
}

}  // namespace keel::lab
