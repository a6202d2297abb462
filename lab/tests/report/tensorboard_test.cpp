// Reads the events back with a decoder written for this test from the format descriptions, with its own checksum.
// tensorboard_reader_test.py does the same with TensorBoard itself.

#include "lab/report/tensorboard.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "lab/tests/report/run_files.h"

namespace keel::lab::report {
namespace {

using testing::TemporaryFolder;

/// Computed bit by bit from the polynomial.
std::uint32_t plain_crc32c(const std::string& bytes) {
  std::uint32_t crc = 0xFFFFFFFF;
  for (const char c : bytes) {
    for (int bit = 0; bit < 8; ++bit) {
      const std::uint32_t low = (crc ^ (std::uint32_t(static_cast<unsigned char>(c)) >> bit)) & 1;
      crc = (crc >> 1) ^ (low ? 0x82F63B78 : 0);
    }
  }
  return crc ^ 0xFFFFFFFF;
}

class Bytes {
 public:
  explicit Bytes(std::string bytes) : bytes_(std::move(bytes)) {}
  bool done() const { return at_ == bytes_.size(); }
  std::string take(std::size_t count) {
    if (count > bytes_.size() - at_) throw std::runtime_error("cut off");
    at_ += count;
    return bytes_.substr(at_ - count, count);
  }
  template <typename T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = std::uint8_t(take(1)[0]);
      value |= std::uint64_t(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
  }

 private:
  std::string bytes_;
  std::size_t at_ = 0;
};

/// Maps field numbers to the values of one message. Scalars are the bytes of a 64-bit number.
struct Message {
  std::multimap<std::uint64_t, std::string> bytes;
  std::map<std::uint64_t, std::uint64_t> integers;
  std::map<std::uint64_t, double> reals;
};

Message decode(const std::string& text) {
  Message message;
  Bytes bytes(text);
  while (!bytes.done()) {
    const auto key = bytes.varint();
    switch (key & 7) {
      case 0:
        message.integers[key >> 3] = bytes.varint();
        break;
      case 1:
        message.reals[key >> 3] = bytes.number<double>();
        break;
      case 2:
        message.bytes.emplace(key >> 3, bytes.take(bytes.varint()));
        break;
      case 5:
        message.reals[key >> 3] = double(bytes.number<float>());
        break;
      default:
        throw std::runtime_error("unknown wire type");
    }
  }
  return message;
}

std::vector<Message> records(const std::filesystem::path& file) {
  const auto unmasked = [](std::uint32_t masked) {
    const std::uint32_t rotated = masked - 0xA282EAD8u;
    return rotated << 15 | rotated >> 17;
  };
  std::vector<Message> messages;
  Bytes bytes(testing::read(file));
  while (!bytes.done()) {
    const std::string length = bytes.take(8);
    EXPECT_EQ(unmasked(bytes.number<std::uint32_t>()), plain_crc32c(length));
    std::uint64_t size;
    std::memcpy(&size, length.data(), 8);
    const std::string data = bytes.take(size);
    EXPECT_EQ(unmasked(bytes.number<std::uint32_t>()), plain_crc32c(data));
    messages.push_back(decode(data));
  }
  return messages;
}

TEST(TensorBoard, ChecksumHasTheValuesOfTheStandard) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);            // the check value of CRC-32C
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);  // RFC 3720, B.4
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43u);
  EXPECT_EQ(crc32c(""), 0u);
}

TEST(TensorBoard, ScalarsComeBack) {
  const TemporaryFolder folder;
  EventWriter writer(folder.path());
  writer.scalars(1, {{"train/loss", 2.25}, {"train/error", 0.5}});
  writer.scalars(300, {{"train/loss", -1e-3}});
  ASSERT_EQ(writer.error(), 0);
  EXPECT_EQ(writer.path().filename().string().rfind("events.out.tfevents.", 0), 0u);

  const auto messages = records(writer.path());
  ASSERT_EQ(messages.size(), 3u);
  EXPECT_EQ(messages[0].bytes.find(3)->second, "brain.Event:2");  // must be the first record
  EXPECT_GT(messages[0].reals.at(1), 1.6e9);                      // wall time
  EXPECT_EQ(messages[1].integers.at(2), 1u);
  EXPECT_EQ(messages[2].integers.at(2), 300u);

  std::map<std::string, double> first;
  const auto summary = decode(messages[1].bytes.find(5)->second);
  for (const auto& [field, bytes] : summary.bytes) {
    ASSERT_EQ(field, 1u);
    const auto value = decode(bytes);
    first[value.bytes.find(1)->second] = value.reals.at(2);
  }
  EXPECT_EQ(first, (std::map<std::string, double>{{"train/loss", 2.25}, {"train/error", 0.5}}));
}

TEST(TensorBoard, AResumedRunTellsToForgetTheStepsItRepeats) {
  const TemporaryFolder folder;
  const EventWriter writer(folder.path(), /*first_step=*/41);
  const auto messages = records(writer.path());
  ASSERT_EQ(messages.size(), 2u);
  EXPECT_EQ(messages[1].integers.at(2), 41u);
  EXPECT_EQ(decode(messages[1].bytes.find(7)->second).integers.at(1), 1u);  // SessionLog.START
}

TEST(TensorBoard, TwoWritersOfOneFolderHaveTwoFiles) {
  const TemporaryFolder folder;
  const EventWriter one(folder.path()), two(folder.path());
  EXPECT_NE(one.path(), two.path());
}

}  // namespace
}  // namespace keel::lab::report
