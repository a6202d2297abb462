#pragma once

#include <string>

namespace keel::lab {

/// Scope in which sockets that this thread binds to all addresses are bound to this one only. For LibTorch before 2.1,
/// whose store has no option for the address.
class BindTo {
 public:
  /// A loopback address.
  explicit BindTo(const std::string& address);
  ~BindTo();
  BindTo(const BindTo&) = delete;
  BindTo& operator=(const BindTo&) = delete;
};

}  // namespace keel::lab
