#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace keel::lab {

/// A key-value store that all processes of a run share: c10d's store. Every call throws if the store is gone, and may hang
/// if its host does. Not thread-safe.
class Mailbox {
 public:
  virtual ~Mailbox() = default;
  virtual void set(const std::string& key, const std::string& value) = 0;
  /// Returns nothing if the key is not set yet.
  virtual std::optional<std::string> get(const std::string& key) = 0;
  /// Adds to a counter, which starts at 0, and returns the new value.
  virtual std::int64_t add(const std::string& key, std::int64_t amount) = 0;
};

}  // namespace keel::lab
