#pragma once

// Debian's LibTorch lacks this header, but c10d's Reducer names two of its types. These declarations are enough, because
// nothing here uses their members.

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
