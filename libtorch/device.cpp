#include "device.h"

#include <ATen/functorch/BatchedTensorImpl.h>
#include <ATen/functorch/TensorWrapper.h>

namespace keel::ops {

bool can_read_values(const Tensor& tensor) {
  using namespace at::functorch;
  // Each level of functorch.grad wraps the tensor of the next outer level and hides its dispatch keys.
  Tensor layer = tensor;
  while (const TensorWrapper* wrapper = maybeGetTensorWrapper(layer)) layer = wrapper->value();
  if (isBatchedTensor(layer)) return false;
  // Fake tensors, which torch.compile traces with, have no data.
  if (layer.key_set().has(c10::DispatchKey::Python)) return false;
  return !(tensor.is_cuda() && capturing_on_cuda(tensor));
}

}  // namespace keel::ops
