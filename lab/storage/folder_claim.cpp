#include "lab/storage/folder_claim.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "keel/error.h"

namespace keel::lab {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& folder, int error) {
  throw Error(fmt::format("expected a folder to write to, got {}: {}", folder.string(),
                          std::strerror(error)));
}

/// Turns "a/b/" and "a/./b" into "a/b", so that the last name is the folder to create.
fs::path plain(const fs::path& folder) {
  const fs::path normal = folder.lexically_normal();
  return normal.has_filename() ? normal : normal.parent_path();
}

/// Returns false if the folder already exists.
bool make(const fs::path& folder) {
  std::error_code error;
  if (folder.has_parent_path()) fs::create_directories(folder.parent_path(), error);
  if (error) fail(folder, error.value());
  if (::mkdir(folder.c_str(), 0777) == 0) return true;
  if (errno != EEXIST) fail(folder, errno);
  return false;
}

bool is_the_same(int descriptor, const fs::path& folder) {
  struct stat opened {
  }, named{};
  return ::fstat(descriptor, &opened) == 0 && ::stat(folder.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

}  // namespace

FolderClaim::FolderClaim(const fs::path& folder, bool made, const std::string& refusal)
    : folder_(folder), made_(made) {
  descriptor_ = ::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor_ < 0) fail(folder_, errno);
  const bool busy = ::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  // Its owner may have removed it since we opened it.
  if (!busy && is_the_same(descriptor_, folder_)) return;
  ::close(descriptor_);
  throw Error(refusal);
}

FolderClaim::FolderClaim(const fs::path& folder, const std::string& refusal)
    : FolderClaim(plain(folder), make(plain(folder)), refusal) {}

FolderClaim FolderClaim::on_new(const fs::path& folder) {
  fs::path name = plain(folder);
  for (int number = 2; !make(name); ++number) name = plain(folder) += fmt::format("-{}", number);
  return {name, /*made=*/true, name.string() + " is in use: another process took it just now"};
}

FolderClaim::FolderClaim(FolderClaim&& other) noexcept
    : folder_(std::move(other.folder_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      made_(std::exchange(other.made_, false)) {}

FolderClaim::~FolderClaim() {
  // Fails if the folder is not empty. Another may have the name by now.
  if (made_ && is_the_same(descriptor_, folder_)) ::rmdir(folder_.c_str());
  if (descriptor_ >= 0) ::close(descriptor_);
}

}  // namespace keel::lab
