// For builds without libcurl or libarchive, in place of download.cpp and storage/archive.cpp.

#include "lab/data/download.h"
#include "lab/storage/archive.h"

namespace keel::lab {

Downloaded download(const std::string& url, const std::filesystem::path& file,
                    const DownloadOptions&) {
  throw std::runtime_error(
      "this program was built without libcurl or libarchive. Install both (Debian: "
      "libcurl4-openssl-dev libarchive-dev) and build it again, or download " +
      url + " and unpack it in " + file.parent_path().string());
}

std::map<std::string, std::string> parse_tar_gz(std::string_view, const std::string&,
                                                const Wanted&) {
  return {};  // nothing was downloaded
}

}  // namespace keel::lab
