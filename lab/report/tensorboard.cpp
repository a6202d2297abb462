#include "lab/report/tensorboard.h"
#include "lab/storage/own_files.h"
#include "lab/storage/run_files.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>

namespace keel::lab::report {
namespace {

// Field numbers of tensorflow's event.proto and summary.proto.
enum Event : std::uint32_t { wall_time = 1, step_field = 2, version = 3, summary = 5, session = 7 };
enum Summary : std::uint32_t { value_field = 1 };
enum Value : std::uint32_t { tag_field = 1, simple_value = 2 };
enum Session : std::uint32_t { status = 1 };
constexpr std::uint64_t kSessionStart = 1;

constexpr std::array<std::uint32_t, 256> crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = (c >> 1) ^ (c & 1 ? 0x82F63B78u : 0);
    table[i] = c;
  }
  return table;
}

template <typename Unsigned>
std::string little_endian(Unsigned value) {
  std::string out;
  for (std::size_t i = 0; i < sizeof(value); ++i) out += char(value >> (8 * i) & 0xFF);
  return out;
}

std::string varint(std::uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += char(value | 0x80);
  return out + char(value);
}

enum Wire : std::uint32_t { wire_varint = 0, wire_64 = 1, wire_bytes = 2, wire_32 = 5 };
std::string key(std::uint32_t field, Wire wire) { return varint(field << 3 | wire); }

std::string field_varint(std::uint32_t field, std::uint64_t value) {
  return key(field, wire_varint) + varint(value);
}
std::string field_double(std::uint32_t field, double value) {
  return key(field, wire_64) + little_endian(std::bit_cast<std::uint64_t>(value));
}
std::string field_float(std::uint32_t field, float value) {
  return key(field, wire_32) + little_endian(std::bit_cast<std::uint32_t>(value));
}
std::string field_bytes(std::uint32_t field, const std::string& bytes) {
  return key(field, wire_bytes) + varint(bytes.size()) + bytes;
}

std::string host() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 && name[0] ? name : "localhost";
}

/// Two writers with the same second, host and process must not share a file.
std::filesystem::path free_name(const std::filesystem::path& folder) {
  const auto stem = fmt::format("{}{:010}.{}.{}", run_files::kEvents, std::int64_t(unix_time()),
                                host(), std::int64_t(getpid()));
  for (int i = 0;; ++i) {
    auto path = folder / fmt::format("{}.{}", stem, i);
    if (!std::filesystem::exists(std::filesystem::symlink_status(path))) return path;
  }
}

std::filesystem::path listed(const std::filesystem::path& path) {
  if (OwnFiles own(path.parent_path()); own.listed()) own.add({path.filename().string()});
  return path;
}

}  // namespace

double unix_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::uint32_t crc32c(const std::string& bytes) {
  static constexpr auto table = crc_table();
  std::uint32_t crc = ~0u;
  for (const char c : bytes) crc = table[(crc ^ std::uint8_t(c)) & 0xFF] ^ (crc >> 8);
  return ~crc;
}

std::uint32_t masked_crc32c(const std::string& bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xA282EAD8u;
}

EventWriter::EventWriter(const std::filesystem::path& folder, std::int64_t first_step)
    : path_(listed(free_name(folder))), file_(path_, LogFile::Open::create) {
  record(field_double(wall_time, unix_time()) + field_bytes(version, "brain.Event:2"));
  if (first_step > 0) {
    record(field_double(wall_time, unix_time()) +
           field_varint(step_field, std::uint64_t(first_step)) +
           field_bytes(session, field_varint(status, kSessionStart)));
  }
}

void EventWriter::scalars(std::int64_t step,
                          const std::vector<std::pair<std::string, double>>& values) {
  std::string entries;
  for (const auto& [tag, value] : values) {
    entries += field_bytes(value_field,
                           field_bytes(tag_field, tag) + field_float(simple_value, float(value)));
  }
  record(field_double(wall_time, unix_time()) + field_varint(step_field, std::uint64_t(step)) +
         field_bytes(summary, entries));
}

void EventWriter::record(const std::string& event) {
  const auto length = little_endian(std::uint64_t(event.size()));
  file_.write(length + little_endian(masked_crc32c(length)) + event +
              little_endian(masked_crc32c(event)));
}

}  // namespace keel::lab::report
