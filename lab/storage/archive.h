#pragma once

// Archives, by libarchive; archive_none.cpp where it is missing.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace keel::lab {

/// Whether this program was built with libarchive.
bool can_unpack();

/// What is taken from an archive.
struct Wanted {
  std::string folder;              ///< of the archive, in which the files are
  std::vector<std::string> files;  ///< names without folders
  std::int64_t most;               ///< bytes, of all that is in the archive
};

/// The wanted files of a .tar.gz by their names, in memory: nothing is written. Other files are skipped.
/// Throws keel::Error naming `file`: for what is no whole .tar.gz, for a wanted file that is missing or there
/// twice, for more than `most` bytes; and for any entry, wanted or not, that no honest data set has: a path that
/// is absolute or has .., a link, a device.
std::map<std::string, std::string> parse_tar_gz(std::string_view bytes, const std::string& file,
                                                const Wanted& wanted);

}  // namespace keel::lab
