#include <stdexcept>

#include "lab/storage/archive.h"

namespace keel::lab {

bool can_unpack() { return false; }

std::map<std::string, std::string> parse_tar_gz(std::string_view, const std::string& file,
                                                const Wanted&) {
  throw std::runtime_error("keel: " + file +
                           ": this program was built without libarchive, which unpacks it");
}

}  // namespace keel::lab
