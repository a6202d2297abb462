#include "device.h"

#include <ATen/functorch/BatchedTensorImpl.h>
#include <ATen/functorch/TensorWrapper.h>

namespace keel::ops {

bool can_be_waited_for(const Tensor& tensor) {
  using namespace at::functorch;
  // A layer of functorch.grad wraps the tensor of the layer outside of it and hides its keys.
  Tensor layer = tensor;
  while (const TensorWrapper* wrapper = maybeGetTensorWrapper(layer)) layer = wrapper->value();
  if (isBatchedTensor(layer)) return false;
  // A tensor that torch.compile traces with has no numbers.
  if (layer.key_set().has(c10::DispatchKey::Python)) return false;
  return !(tensor.is_cuda() && capturing_on_cuda(tensor));
}

}  // namespace keel::ops
