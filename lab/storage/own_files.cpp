#include "lab/storage/own_files.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <iterator>
#include <sstream>
#include <system_error>

#include "lab/require.h"
#include "lab/storage/files.h"

namespace keel::lab {
namespace {

namespace fs = std::filesystem;

constexpr const char* kHeading =
    "# The files and folders here that keel wrote. It replaces and removes no others.";
constexpr std::uintmax_t kLongestList = 1 << 24;

/// The name of the file that "NAME.0123456789abcdef.unfinished" was to become; empty for other names.
std::string name_to_be(const std::string& file) {
  const std::string end = kUnfinished;
  if (file.size() < kRandomLetters + end.size() + 1 || !file.ends_with(end)) return {};
  const auto dot = file.size() - end.size() - kRandomLetters - 1;
  const bool random =
      file.find_first_not_of("0123456789abcdef", dot + 1) == dot + 1 + kRandomLetters;
  return file[dot] == '.' && random ? file.substr(0, dot) : "";
}

bool is_folder(const fs::path& path) {
  std::error_code unknown;
  return fs::is_directory(fs::symlink_status(path, unknown));
}

}  // namespace

OwnFiles::OwnFiles(fs::path folder) : folder_(std::move(folder)) {
  const fs::path list = folder_ / kName;
  struct stat about {};
  if (::lstat(list.c_str(), &about) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return;
    throw Unreadable("cannot open ", list, errno);
  }
  require(S_ISREG(about.st_mode), "{}: expected a regular file", list.string());
  std::istringstream lines(read_file(list, kLongestList));
  std::string line;
  std::getline(lines, line);
  require(line == kHeading, "{}: expected a list of keel's, got '{}'", list.string(),
          line.substr(0, 80));
  while (std::getline(lines, line)) {
    require(!line.empty() && line != "." && line != ".." && line.find('/') == line.npos,
            "{}: expected names of files in this folder, got '{}'", list.string(), line);
    names_.insert(line);
  }
  listed_ = true;
}

void OwnFiles::begin() {
  if (listed_) return;
  fs::create_directories(folder_);
  save();
  listed_ = true;
}

int OwnFiles::obstacle(const std::string& name) const {
  struct stat about {};
  if (::lstat((folder_ / name).c_str(), &about) != 0) return errno == ENOENT ? 0 : errno;
  if (S_ISLNK(about.st_mode)) return ELOOP;
  return has(name) || !listed_ ? 0 : EEXIST;
}

void OwnFiles::check(const std::vector<std::string>& names) const {
  for (const auto& name : names)
    if (const int error = obstacle(name))
      throw Error(fmt::format("cannot write {}: {}", (folder_ / name).string(),
                              error == EEXIST  ? "keel did not make what is there"
                              : error == ELOOP ? "it is a link"
                                               : std::strerror(error)));
}

void OwnFiles::add(const std::vector<std::string>& names) {
  const auto fail = [&](int error, const std::string& what) {
    throw std::system_error(error, std::generic_category(), what);
  };
  if (!listed_) fail(ENOENT, folder_.string() + " is no folder of keel's (any more)");
  bool more = false;
  for (const auto& name : names) {
    if (const int error = obstacle(name))
      fail(error, "cannot write " + (folder_ / name).string() +
                      (error == EEXIST ? ", which keel did not make" : ""));
    more = names_.insert(name).second || more;
  }
  if (more) save();
}

void OwnFiles::remove(const std::vector<std::string>& names) {
  bool fewer = false;
  for (const auto& name : names) {
    if (!has(name)) continue;
    const fs::path path = folder_ / name;
    std::error_code error;
    const bool gone = is_folder(path) ? remove_folder(path) : (fs::remove(path, error), !error);
    if (!gone) continue;  // it stays listed
    names_.erase(name);
    fewer = true;
  }
  if (fewer) save();
}

bool OwnFiles::remove_folder(const fs::path& folder) {
  std::error_code error;
  if (!is_folder(folder)) return !fs::exists(folder, error);
  OwnFiles inside(folder);
  inside.remove_all();
  if (!inside.empty() || std::distance(fs::directory_iterator(folder), {}) > inside.listed())
    return false;  // others' files are in it
  fs::remove(folder / kName, error);
  return fs::remove(folder, error);
}

void OwnFiles::remove_all(const std::string& first) {
  if (!listed_) return;
  // A list that cannot be read is an error before anything is removed.
  for (const auto& name : names_)
    if (is_folder(folder_ / name)) OwnFiles{folder_ / name};
  clean();
  remove({first});
  remove({names_.begin(), names_.end()});
}

void OwnFiles::clean() const {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder_, ignored)) {
    const std::string name = name_to_be(entry.path().filename().string());
    if (name == kName || has(name)) fs::remove(entry.path(), ignored);
  }
}

void OwnFiles::save() const {
  std::string text = std::string(kHeading) + "\n";
  for (const auto& name : names_) text += name + "\n";
  replace_file(folder_ / kName, text);
}

bool is_empty_folder(const fs::path& folder) {
  std::error_code absent;
  for (const auto& entry : fs::directory_iterator(folder, absent))
    if (name_to_be(entry.path().filename().string()) != OwnFiles::kName) return false;
  return !absent || absent == std::errc::no_such_file_or_directory;
}

}  // namespace keel::lab
