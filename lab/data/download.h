#pragma once

// Downloads a file with libcurl. Without libcurl or libarchive, no_download.cpp is built instead.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>

namespace keel::lab {

/// The download failed. The received part is kept.
class DownloadError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct DownloadOptions {
  std::int64_t size = 0;      ///< of the file; 0: unknown
  std::int64_t most = 0;      ///< limit in bytes, if the size is unknown
  std::string magic;          ///< the file's first bytes; other content is taken for an error page
  std::int64_t timeout = 30;  ///< seconds to wait for a connection, and for the next byte
  std::function<bool()> stop = [] { return false; };  ///< called at least about once a second
  std::function<void(std::int64_t done, std::int64_t total)> progress = [](auto, auto) {};
  std::function<void(const std::string&)> say = [](const auto&) {};
};

enum class Downloaded {
  kAtOnce,    ///< in one answer of the server
  kInPieces,  ///< continued a partial file, or reconnected midway
  kStopped,   ///< by options.stop, midway
};

/// Completes `file` from an http, https or file URL. Continues a partial file if the server supports it, and
/// reconnects if the connection breaks after some bytes. Throws DownloadError, or std::system_error if writing fails.
/// In either case the next call continues with what has been received. The caller must check the content.
///
/// Follows redirections, but from https only to https. Uses the environment's proxy (http_proxy, ...), except for
/// this machine's own addresses.
Downloaded download(const std::string& url, const std::filesystem::path& file,
                    const DownloadOptions& options);

}  // namespace keel::lab
