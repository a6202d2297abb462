#pragma once

#include <torch/types.h>

namespace keel::lab {

/// Scope in which autocast to bfloat16 is on or off for this device. The end of the scope drops cached casts of
/// weights, so a captured step makes its own.
class Autocast {
 public:
  Autocast(torch::Device device, bool on);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  torch::DeviceType device_;
  bool was_on_;
  torch::Dtype was_type_;
};

}  // namespace keel::lab
