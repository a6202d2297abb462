#pragma once

// Reads archives with libarchive. Without it, lab/data/no_download.cpp is built instead.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace keel::lab {

/// Which files to take from an archive.
struct Wanted {
  std::string folder;              ///< the files' folder in the archive
  std::vector<std::string> files;  ///< names without folders
  std::int64_t most;               ///< limit on the bytes of everything in the archive
};

/// Returns the wanted files of a .tar.gz by name, in memory. Other files are skipped, and nothing is written. Throws
/// keel::Error that names `file` if it is not a complete .tar.gz, if a wanted file is missing or appears twice, if it
/// has more than `most` bytes, or if any entry is suspicious: a link, a device, or a path that is absolute or has
/// "..".
std::map<std::string, std::string> parse_tar_gz(std::string_view bytes, const std::string& file,
                                                const Wanted& wanted);

}  // namespace keel::lab
