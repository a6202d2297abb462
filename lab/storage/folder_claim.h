#pragma once

#include <filesystem>
#include <string>

namespace keel::lab {

/// A folder for one process alone. The claim ends with the process, however that ends. Where the file
/// system knows no locks nobody is kept out.
class FolderClaim {
 public:
  /// Makes the folder where there is none. Throws keel::Error: `refusal` where another process has it, or
  /// why it cannot be made.
  FolderClaim(const std::filesystem::path& folder, const std::string& refusal);
  /// A folder that was not there: `folder`, or else the first of folder-2, folder-3, ...
  static FolderClaim on_new(const std::filesystem::path& folder);
  /// A folder that the claim made and that is empty still goes with it.
  ~FolderClaim();
  FolderClaim(FolderClaim&& other) noexcept;
  FolderClaim& operator=(FolderClaim&&) = delete;

  const std::filesystem::path& path() const { return folder_; }

 private:
  enum class Lock { ours, anothers, folder_gone };

  FolderClaim() = default;
  Lock lock();

  std::filesystem::path folder_;
  int descriptor_ = -1;
  bool made_ = false;
};

}  // namespace keel::lab
