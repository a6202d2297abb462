#include "lab/data/get_cifar.h"

#include <fmt/format.h>

#include <map>
#include <optional>
#include <system_error>

#include "lab/data/cifar.h"
#include "lab/require.h"
#include "lab/storage/archive.h"
#include "lab/storage/checksum.h"
#include "lab/storage/files.h"
#include "lab/storage/folder_claim.h"

namespace keel::lab {
namespace {

namespace fs = std::filesystem;

constexpr const char* kGzip = "\x1f\x8b";
constexpr std::int64_t kMost = std::int64_t{1} << 30;  // a set is 185 MB

fs::path unfinished(const fs::path& path) { return path.string() + kUnfinished; }

/// The first missing file of the set; empty if the set is complete.
std::string missing_file(const fs::path& folder, const CifarFormat& format) {
  for (const std::string& name : format.files())
    if (!fs::is_regular_file(folder / name)) return name;
  return {};
}

/// The folder that has the complete set, if any.
std::optional<fs::path> found(const GetOptions& options, const CifarFormat& format) {
  for (const fs::path& folder : {options.folder, options.folder / format.folder})
    if (missing_file(folder, format).empty()) return folder;
  return {};
}

/// The complete archive, with its checksum verified; empty if told to stop.
std::string checked_archive(const GetOptions& options, const CifarFormat& format,
                            const fs::path& part) {
  const std::string url = options.url.empty() ? format.archive.url : options.url;
  const std::string md5_expected = options.md5.empty() ? format.archive.md5 : options.md5;
  DownloadOptions how = options.download;
  how.magic = kGzip;
  how.most = kMost;
  if (options.md5.empty()) how.size = format.archive.size;
  for (bool again = false;; again = true) {
    const Downloaded end = download(url, part, how);
    if (end == Downloaded::kStopped) return {};
    std::string bytes = read_file(part, std::uintmax_t(kMost));
    const std::string got = md5(bytes);
    if (got == md5_expected) return bytes;
    fs::remove(part);
    const std::string what = fmt::format("{}: expected an archive with MD5 {}, got {} ({} bytes)",
                                         url, md5_expected, got, bytes.size());
    if (end == Downloaded::kAtOnce || again) throw Error("keel: " + what);
    how.say(what + ". Part of it was older; starting again");
  }
}

std::map<std::string, std::string> unpacked(const std::string& archive, const CifarFormat& format,
                                            const fs::path& part) {
  try {
    return parse_tar_gz(archive, format.archive.file, {format.folder, format.files(), kMost});
  } catch (const Error&) {
    fs::remove(part);  // retrying with these bytes is useless
    throw;
  }
}

void write_set(const std::map<std::string, std::string>& files, const fs::path& folder) {
  const fs::path young = unfinished(folder);
  fs::remove_all(young);  // left by a call that was killed
  fs::create_directory(young);
  for (const auto& [name, bytes] : files) write_file_atomically(young / name, bytes);
  fs::rename(young, folder);
}

}  // namespace

Got get_cifar(const GetOptions& options) {
  const CifarFormat format = cifar_format(options.source);
  if (const auto folder = found(options, format)) return {*folder, Got::kThere};
  const FolderClaim claim(options.folder, fmt::format("keel: another process is writing to {}",
                                                      options.folder.string()));
  if (const auto folder = found(options, format)) return {*folder, Got::kThere};  // by that process
  const fs::path folder = options.folder / format.folder;
  require(!fs::exists(folder) || fs::is_empty(folder),
          "keel: {}: expected all of {} or nothing, got a folder without {}; remove it "
          "and try again",
          folder.string(), format.name, missing_file(folder, format));
  const fs::path part = unfinished(options.folder / format.archive.file);
  try {
    const std::string archive = checked_archive(options, format, part);
    if (archive.empty()) return {folder, Got::kStopped};
    options.download.say(fmt::format("unpacking {}", format.archive.file));
    write_set(unpacked(archive, format, part), folder);
    fs::remove(part);
  } catch (const std::system_error& error) {  // usually a full disk
    throw std::runtime_error(fmt::format(
        "{}. The downloaded part is kept, and the same command continues", error.what()));
  }
  return {folder, Got::kNew};
}

}  // namespace keel::lab
