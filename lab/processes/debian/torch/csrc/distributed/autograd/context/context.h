#pragma once

// Debian's LibTorch leaves this header out, and c10d's Reducer names two types of it. It needs to know
// no more of them than this, as long as nobody here looks inside.

#include <ATen/Tensor.h>

#include <functional>
#include <memory>

namespace torch::distributed::autograd {

class DistAutogradContext {
 public:
  using GradCallback = std::function<bool(at::Tensor&)>;
};
using ContextPtr = std::shared_ptr<DistAutogradContext>;

}  // namespace torch::distributed::autograd
