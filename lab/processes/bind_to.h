#pragma once

#include <string>

namespace keel::lab {

/// While it lives, what this thread binds to every address of the machine is bound to this one alone.
/// For LibTorch before 2.1, whose store cannot be told where to listen.
class BindTo {
 public:
  /// A loopback address.
  explicit BindTo(const std::string& address);
  ~BindTo();
  BindTo(const BindTo&) = delete;
  BindTo& operator=(const BindTo&) = delete;
};

}  // namespace keel::lab
