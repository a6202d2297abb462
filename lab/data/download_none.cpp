#include "lab/data/download.h"

namespace keel::lab {

bool can_download() { return false; }

Downloaded download(const std::string& url, const std::filesystem::path&, const DownloadOptions&) {
  throw std::runtime_error("keel: " + url +
                           ": this program was built without libcurl, which downloads it");
}

}  // namespace keel::lab
