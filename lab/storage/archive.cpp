#include "lab/storage/archive.h"

#include <archive.h>
#include <archive_entry.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <optional>

#include "keel/error.h"

namespace keel::lab {
namespace {

using Reader = std::unique_ptr<::archive, decltype(&::archive_read_free)>;

/// What the entry is, if it is neither a file nor a folder.
std::optional<std::string> oddity(::archive_entry* entry) {
  if (const char* target = ::archive_entry_hardlink(entry))
    return fmt::format("a link to '{}'", target);
  switch (::archive_entry_filetype(entry)) {
    case AE_IFREG:
    case AE_IFDIR:
      return {};
    case AE_IFLNK: {
      const char* target = ::archive_entry_symlink(entry);
      return fmt::format("a link to '{}'", target != nullptr ? target : "?");
    }
    default:
      return "a device or a pipe";
  }
}

/// The path without a leading "./", which some packers add. Empty if it leaves the target folder.
std::optional<std::filesystem::path> inner_path(const std::filesystem::path& given) {
  if (given.is_absolute()) return {};
  std::filesystem::path path;
  for (const auto& part : given) {
    if (part == "..") return {};
    if (part != ".") path /= part;
  }
  return path;
}

class TarGz {
 public:
  TarGz(std::string_view bytes, const std::string& file)
      : file_(file), reader_(::archive_read_new(), ::archive_read_free) {
    expect(reader_ != nullptr, "memory for it");
    // Only these two; libarchive knows dozens.
    ::archive_read_support_filter_gzip(reader_.get());
    ::archive_read_support_format_tar(reader_.get());
    if (::archive_read_open_memory(reader_.get(), bytes.data(), bytes.size()) != ARCHIVE_OK)
      give_up();
  }

  /// Returns null at the end.
  ::archive_entry* next() {
    ::archive_entry* entry = nullptr;
    const int status = ::archive_read_next_header(reader_.get(), &entry);
    if (status == ARCHIVE_EOF) return nullptr;
    if (status != ARCHIVE_OK) give_up();
    return entry;
  }

  /// The content of the entry that next() returned.
  std::string content(std::int64_t size) {
    std::string content;
    std::array<char, 1 << 16> piece;
    while (true) {
      const auto count = ::archive_read_data(reader_.get(), piece.data(), piece.size());
      if (count < 0) give_up();
      if (count == 0) break;
      content.append(piece.data(), std::size_t(count));
    }
    expect(std::int64_t(content.size()) == size, fmt::format("an entry of {} bytes", size),
           fmt::format("{}", content.size()));
    return content;
  }

  void expect(bool holds, const std::string& what, const std::string& got = "") const {
    if (holds) return;
    throw Error(
        fmt::format("keel: {}: expected {}{}", file_, what, got.empty() ? "" : ", got " + got));
  }

 private:
  [[noreturn]] void give_up() const {
    const char* why = ::archive_error_string(reader_.get());
    throw Error(fmt::format("keel: {}: expected a whole .tar.gz: {}", file_,
                            why != nullptr ? why : "it cannot be read"));
  }

  const std::string& file_;
  Reader reader_;
};

}  // namespace

std::map<std::string, std::string> parse_tar_gz(std::string_view bytes, const std::string& file,
                                                const Wanted& wanted) {
  TarGz archive(bytes, file);
  std::map<std::string, std::string> found;
  std::int64_t total = 0;
  while (::archive_entry* entry = archive.next()) {
    const char* name = ::archive_entry_pathname(entry);
    archive.expect(name != nullptr && *name != '\0', "names that can be read");
    const auto path = inner_path(name);
    archive.expect(path.has_value(), "paths inside the archive's own folder",
                   fmt::format("'{}'", name));
    if (const auto odd = oddity(entry))
      archive.expect(false, "files and folders alone", fmt::format("'{}', {}", name, *odd));
    // Each entry also counts its header block, because even empty entries take time.
    constexpr std::int64_t kHeader = 512;
    const std::int64_t size = ::archive_entry_size(entry);
    archive.expect(
        size >= 0 && size <= wanted.most - kHeader && total <= wanted.most - kHeader - size,
        fmt::format("at most {} bytes in it", wanted.most), "more");
    total += kHeader + size;
    const std::string leaf = path->filename().string();
    if (::archive_entry_filetype(entry) != AE_IFREG || path->parent_path() != wanted.folder ||
        std::ranges::find(wanted.files, leaf) == wanted.files.end())
      continue;
    archive.expect(found.count(leaf) == 0, fmt::format("one {}", leaf), "two");
    found.emplace(leaf, archive.content(size));
  }
  for (const std::string& leaf : wanted.files)
    archive.expect(found.count(leaf) > 0, fmt::format("{}/{} in it", wanted.folder, leaf), "none");
  return found;
}

}  // namespace keel::lab
