#pragma once

// One file from a server, by libcurl; download_none.cpp where it is missing.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>

namespace keel::lab {

/// The server or the network did not give what was asked for; what did come is kept.
class DownloadError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct DownloadOptions {
  std::int64_t size = 0;  ///< the file's; 0: not known
  std::int64_t most = 0;  ///< bytes that are taken, where the size is not known
  std::string magic;  ///< what the file begins with; else the answer is an error page, or whatever
  std::int64_t timeout = 30;  ///< seconds to wait for a connection, and for the next byte
  std::function<bool()> stop = [] { return false; };  ///< asked about once a second or more
  std::function<void(std::int64_t done, std::int64_t total)> progress = [](auto, auto) {};
  std::function<void(const std::string&)> say = [](const auto&) {};
};

enum class Downloaded {
  kAtOnce,    ///< the whole file is one answer of the server
  kInPieces,  ///< it began with what was there already, or the server was asked again midway
  kStopped,   ///< by options.stop, midway
};

/// Whether this program was built with libcurl.
bool can_download();

/// Brings `file` to its end (http, https or file): goes on with what is there, where the server can, and asks again where the
/// connection broke after some bytes. Throws DownloadError, and std::system_error where the disk says no. In all cases
/// the next call goes on with what has come. Whether that is the right content is for the caller to see.
///
/// Redirections are followed; from https they may lead to https alone. The environment's proxy is taken (http_proxy,
/// ...), but not for this machine's own addresses.
Downloaded download(const std::string& url, const std::filesystem::path& file,
                    const DownloadOptions& options);

}  // namespace keel::lab
