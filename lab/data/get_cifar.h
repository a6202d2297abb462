#pragma once

#include <filesystem>
#include <string>

#include "lab/data/download.h"

namespace keel::lab {

struct GetOptions {
  std::string source;            ///< cifar10 or cifar100
  std::filesystem::path folder;  ///< created if missing
  std::string url;               ///< of a mirror; empty: the authors' server
  std::string md5;               ///< of the mirror's archive, if packed differently
  DownloadOptions download;      ///< timeout, stop, progress, say
};

struct Got {
  std::filesystem::path folder;  ///< contains the files
  enum { kNew, kThere, kStopped } how;
};

/// Downloads a set's archive, checks it and unpacks it into a subfolder of `folder`, completely or not at all. Until
/// it is unpacked, the archive is FOLDER/NAME.tar.gz.unfinished, and the files are in a folder with that ending until
/// all are written. No other existing file is touched.
///
/// Throws DownloadError, or std::runtime_error if writing fails (after both the next call continues), keel::Error if
/// the archive is not the set's or the folder has only a part of the set, and std::runtime_error that names the
/// libraries in a build without them.
Got get_cifar(const GetOptions& options);

}  // namespace keel::lab
