#pragma once

#include <ATen/record_function.h>

namespace keel::lab {

/// While it lives, adds up the time this thread spends inside operators, LibTorch's and keel's. Work
/// of a CPU's backward pass is on the calling thread too. One at a time on a thread.
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
