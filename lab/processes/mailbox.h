#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "lab/processes/place.h"

namespace keel::lab {

/// A board that all processes of a run write to and read from: c10d's store. Every call throws where
/// the store is gone, and may wait for ever where its keeper hangs. Not for two threads at once.
class Mailbox {
 public:
  virtual ~Mailbox() = default;
  virtual void set(const std::string& key, const std::string& value) = 0;
  /// Nothing where nobody has set it yet.
  virtual std::optional<std::string> get(const std::string& key) = 0;
  /// Adds to a counter, which begins at 0, and returns it.
  virtual std::int64_t add(const std::string& key, std::int64_t amount) = 0;
};

}  // namespace keel::lab
