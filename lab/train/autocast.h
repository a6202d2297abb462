#pragma once

#include <torch/types.h>

namespace keel::lab {

/// While it lives, LibTorch computes convolutions and products on this device in bfloat16 (`on`) or
/// as they come. Casts of weights are kept until the end and no longer, so a captured step makes its
/// own.
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
