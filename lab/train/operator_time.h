#pragma once

#include <ATen/record_function.h>

namespace keel::lab {

/// Scope that adds up the time this thread spends inside operators of LibTorch and keel. On the CPU, backward runs on the
/// calling thread too. At most one per thread.
class OperatorTime {
 public:
  OperatorTime();
  ~OperatorTime();
  OperatorTime(const OperatorTime&) = delete;
  OperatorTime& operator=(const OperatorTime&) = delete;

  double seconds() const;

 private:
  at::CallbackHandle handle_;
};

}  // namespace keel::lab
