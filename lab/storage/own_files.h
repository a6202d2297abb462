#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <vector>

namespace keel::lab {

/// The files of a run folder. docs/lab.md describes each.
namespace run_files {
inline constexpr const char* kConfig = "config.toml";
inline constexpr const char* kMetrics = "metrics.jsonl";
inline constexpr const char* kResult = "result.json";
inline constexpr const char* kSpectrum = "spectrum.json";
inline constexpr const char* kCheckpoints = "checkpoints";  ///< a folder
}  // namespace run_files

/// What keel created in a folder, by name. The folder has the list in a file (kName). Only what is listed is replaced or
/// removed. A folder with a list is one of keel's.
class OwnFiles {
 public:
  static constexpr const char* kName = ".keel-files";

  /// Reads the folder's list. Throws keel::Error if there is one that cannot be read.
  explicit OwnFiles(std::filesystem::path folder);

  bool listed() const { return listed_; }  ///< whether the folder has a list
  bool has(const std::string& name) const { return names_.count(name) > 0; }
  bool empty() const { return names_.empty(); }

  /// Creates the folder and its list where they are missing. Throws std::system_error.
  void begin();
  /// Lists names before they are created. Throws std::system_error if the folder has no list (any more), or if
  /// something that is not listed has such a name, or a link has.
  void add(const std::vector<std::string>& names);
  /// Throws keel::Error where add() would throw because of a name.
  void check(const std::vector<std::string>& names) const;
  /// Removes those of the names that are listed. A folder goes with its own listed files, unless others are in it.
  void remove(const std::vector<std::string>& names);
  /// Removes all that is listed, `first` first.
  void remove_all(const std::string& first = "");
  /// Removes the files that a folder lists and, unless others are in it, the folder. Returns false if it stays.
  static bool remove_folder(const std::filesystem::path& folder);
  /// Removes what writers of listed files left when they were killed.
  void clean() const;

 private:
  /// Why the name cannot be written to; 0 if it can.
  int obstacle(const std::string& name) const;
  void save() const;

  std::filesystem::path folder_;
  bool listed_ = false;
  std::set<std::string> names_;
};

/// Whether a folder is missing or has nothing in it but what an ended writer of a list left.
bool is_empty_folder(const std::filesystem::path& folder);

}  // namespace keel::lab
