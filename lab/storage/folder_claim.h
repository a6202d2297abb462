#pragma once

#include <filesystem>
#include <string>

namespace keel::lab {

/// Exclusive use of a folder by one process. The claim ends with the process, even if that crashes. On a file system
/// without locks it has no effect.
class FolderClaim {
 public:
  /// Creates the folder if it does not exist. Throws keel::Error with `refusal` if another process has it (for a run
  /// there is one), or with the reason if it cannot be created.
  FolderClaim(const std::filesystem::path& folder, const std::string& refusal);
  explicit FolderClaim(const std::filesystem::path& run)
      : FolderClaim(run, run.string() + " is in use: another process trains there now") {}
  /// Creates and claims a new folder: `folder`, or the first of folder-2, folder-3, ... that can be made.
  static FolderClaim on_new(const std::filesystem::path& folder);
  /// Removes the folder if the claim created it and it is still empty.
  ~FolderClaim();
  FolderClaim(FolderClaim&& other) noexcept;
  FolderClaim& operator=(FolderClaim&&) = delete;

  const std::filesystem::path& path() const { return folder_; }

 private:
  FolderClaim(const std::filesystem::path& folder, bool made, const std::string& refusal);

  std::filesystem::path folder_;
  int descriptor_ = -1;
  bool made_ = false;
};

}  // namespace keel::lab
