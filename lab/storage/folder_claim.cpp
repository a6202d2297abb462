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

/// A link to nothing exists for mkdir() and does not for open().
bool leads_nowhere(const fs::path& folder) {
  struct stat about {};
  return ::lstat(folder.c_str(), &about) == 0 && S_ISLNK(about.st_mode) &&
         ::stat(folder.c_str(), &about) != 0 && errno == ENOENT;
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

FolderClaim::FolderClaim(const fs::path& folder, const std::string& refusal) : FolderClaim() {
  folder_ = plain(folder);
  // A previous owner may remove the folder between our making it and our locking it.
  Lock found = Lock::folder_gone;
  while (found == Lock::folder_gone) {
    made_ = make(folder_);
    if (!made_ && leads_nowhere(folder_))
      throw Error(fmt::format("expected a folder to write to, got {}: a link to nothing",
                              folder_.string()));
    found = lock();
  }
  if (found == Lock::anothers) throw Error(refusal);
}

FolderClaim FolderClaim::on_new(const fs::path& folder) {
  for (int number = 1;; ++number) {
    FolderClaim claim;
    claim.folder_ = plain(folder);
    if (number > 1) claim.folder_ += fmt::format("-{}", number);
    claim.made_ = make(claim.folder_);
    if (claim.made_ && claim.lock() == Lock::ours) return claim;
  }
}

FolderClaim::Lock FolderClaim::lock() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = ::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor_ < 0 && errno != ENOENT) fail(folder_, errno);
  const bool there = descriptor_ >= 0;
  const bool busy = there && ::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  if (there && !busy && is_the_same(descriptor_, folder_)) return Lock::ours;
  made_ = false;  // what has that name now belongs to another process
  return busy ? Lock::anothers : Lock::folder_gone;
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
