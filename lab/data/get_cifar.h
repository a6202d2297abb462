#pragma once

#include <filesystem>
#include <string>

#include "lab/data/download.h"

namespace keel::lab {

struct GetOptions {
  std::string source;            ///< cifar10 or cifar100
  std::filesystem::path folder;  ///< made where there is none
  std::string url;               ///< of another server; empty: its makers'
  std::string md5;               ///< of that server's archive, where it is packed in another way
  DownloadOptions download;      ///< timeout, stop, progress, say
};

struct Got {
  std::filesystem::path folder;  ///< that has the files
  enum { kNew, kThere, kStopped } how;
};

/// Downloads a set's archive, checks it and unpacks it into a folder of `folder`. The set is there as a whole or not at
/// all: the archive is FOLDER/NAME.tar.gz.unfinished until it is unpacked, the files are in a folder of such a name until
/// all are written. Nothing that was there is touched but these two.
///
/// Throws DownloadError and std::system_error (the next call goes on), keel::Error for an archive that is not the set's or
/// a folder with a part of the set, and std::runtime_error, naming it, where a library is missing from this build.
Got get_cifar(const GetOptions& options);

}  // namespace keel::lab
