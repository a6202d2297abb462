#pragma once

#include <string>

namespace keel::lab {

/// Scope in which sockets that this thread would bind to all addresses are bound only to this one. For LibTorch
/// before 2.1, whose store has no option for the address.
class BindTo {
 public:
  /// `address` is a loopback address.
  explicit BindTo(const std::string& address);
  ~BindTo();
  BindTo(const BindTo&) = delete;
  BindTo& operator=(const BindTo&) = delete;
};

}  // namespace keel::lab
