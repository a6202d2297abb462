#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "keel/error.h"
#include "lab/train/fused_step.h"
#include "lab/train/fused_step_kernels.h"

namespace keel::lab {
namespace {

using torch::Tensor;

/// Checks what the kernels assume.
void expect(const Tensor& tensor, torch::Dtype type, std::int64_t size) {
  require(tensor.is_cuda() && tensor.is_contiguous() && tensor.scalar_type() == type &&
              tensor.numel() == size,
          "a fused step expected another tensor on the GPU");
}

cudaStream_t stream_now() { return c10::cuda::getCurrentCUDAStream().stream(); }
unsigned* flag_of(const Tensor& tensor) {
  return reinterpret_cast<unsigned*>(tensor.data_ptr<int>());
}

}  // namespace

bool has_fused_step() { return true; }

void fused_gather(const std::vector<GradientPiece>& pieces, const Tensor& gradients,
                  const Tensor& not_finite) {
  const c10::cuda::CUDAGuard device(gradients.device());
  expect(not_finite, torch::kInt, 1);
  expect(gradients, torch::kFloat, gradients.numel());
  std::vector<cuda::Piece> list;
  for (const auto& [numbers, begin] : pieces) {
    const bool narrow = numbers.scalar_type() == torch::kBFloat16;
    expect(numbers, narrow ? torch::kBFloat16 : torch::kFloat, numbers.numel());
    require(begin >= 0 && begin + numbers.numel() <= gradients.numel(),
            "a fused step expected a gradient within the buffer");
    list.push_back({numbers.data_ptr(), begin, numbers.numel(), narrow});
  }
  C10_CUDA_CHECK(cuda::gather(list.data(), std::int64_t(list.size()), gradients.data_ptr<float>(),
                              flag_of(not_finite), stream_now()));
}

void fused_descend(const DescentBuffers& buffers, const Tensor& rate, double momentum,
                   double weight_decay) {
  const auto& [values, gradients, momenta, narrow] = buffers;
  const c10::cuda::CUDAGuard device(values.device());
  const auto expect_aligned = [&](const Tensor& buffer, torch::Dtype type) {
    expect(buffer, type, values.numel());
    require(reinterpret_cast<std::uintptr_t>(buffer.data_ptr()) % (4 * buffer.element_size()) == 0,
            "a fused step expected buffers aligned to four numbers");
  };
  for (const Tensor* buffer : {&values, &gradients, &momenta})
    expect_aligned(*buffer, torch::kFloat);
  if (narrow.defined()) expect_aligned(narrow, torch::kBFloat16);
  expect(rate, torch::kFloat, 1);
  cuda::Descent task;
  task.size = values.numel();
  task.gradients = gradients.data_ptr<float>();
  task.rate = rate.data_ptr<float>();
  task.momentum = float(momentum);
  task.weight_decay = float(weight_decay);
  task.values = values.data_ptr<float>();
  task.momenta = momenta.data_ptr<float>();
  task.bfloat16_values = narrow.defined() ? narrow.data_ptr() : nullptr;
  C10_CUDA_CHECK(cuda::descend(task, stream_now()));
}

}  // namespace keel::lab
