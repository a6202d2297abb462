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
          "keel::lab: a fused step expected another tensor on the GPU");
}

cudaStream_t stream_now() { return c10::cuda::getCurrentCUDAStream().stream(); }
unsigned* flag_of(const Tensor& tensor) {
  return reinterpret_cast<unsigned*>(tensor.data_ptr<int>());
}

}  // namespace

bool has_fused_step() { return true; }

void fused_gather(const std::vector<Tensor>& pieces, const Tensor& gradients,
                  const Tensor& not_finite) {
  const c10::cuda::CUDAGuard device(gradients.device());
  expect(not_finite, torch::kInt, 1);
  std::vector<cuda::Piece> list;
  std::int64_t size = 0;
  for (const Tensor& piece : pieces) {
    const bool narrow = piece.scalar_type() == torch::kBFloat16;
    expect(piece, narrow ? torch::kBFloat16 : torch::kFloat, piece.numel());
    list.push_back({piece.data_ptr(), piece.numel(), narrow});
    size += piece.numel();
  }
  expect(gradients, torch::kFloat, size);
  C10_CUDA_CHECK(cuda::gather(list.data(), std::int64_t(list.size()), gradients.data_ptr<float>(),
                              flag_of(not_finite), stream_now()));
}

void fused_measure(const FusedReadings& readings, const Tensor& loss, const Tensor& errors,
                   const Tensor& leading, const Tensor& not_finite) {
  const c10::cuda::CUDAGuard device(leading.device());
  for (const Tensor* number :
       {&readings.loss_sum, &readings.error_sum, &readings.gradient_norm, &readings.good_steps})
    expect(*number, torch::kDouble, 1);
  expect(readings.halted, torch::kBool, 1);
  expect(loss, torch::kFloat, 1);
  expect(errors, torch::kLong, 1);
  expect(leading, torch::kFloat, leading.numel());
  expect(not_finite, torch::kInt, 1);
  cuda::Measurement task;
  task.loss = loss.data_ptr<float>();
  task.errors = errors.data_ptr<std::int64_t>();
  task.leading = leading.data_ptr<float>();
  task.leading_size = leading.numel();
  task.not_finite = flag_of(not_finite);
  task.loss_sum = readings.loss_sum.data_ptr<double>();
  task.error_sum = readings.error_sum.data_ptr<double>();
  task.norm = readings.gradient_norm.data_ptr<double>();
  task.good_steps = readings.good_steps.data_ptr<double>();
  task.halted = readings.halted.data_ptr<bool>();
  C10_CUDA_CHECK(cuda::measure(task, stream_now()));
}

void fused_descend(const Tensor& values, const Tensor& gradients, const Tensor& momenta,
                   const Tensor& rate, const Tensor& halted, double momentum, double weight_decay) {
  const c10::cuda::CUDAGuard device(values.device());
  for (const Tensor* buffer : {&values, &gradients, &momenta}) {
    expect(*buffer, torch::kFloat, values.numel());
    require(reinterpret_cast<std::uintptr_t>(buffer->data_ptr()) % 16 == 0,
            "keel::lab: a fused step expected buffers at a multiple of 16 bytes");
  }
  expect(rate, torch::kFloat, 1);
  expect(halted, torch::kBool, 1);
  cuda::Descent task;
  task.size = values.numel();
  task.gradients = gradients.data_ptr<float>();
  task.rate = rate.data_ptr<float>();
  task.halted = halted.data_ptr<bool>();
  task.momentum = float(momentum);
  task.weight_decay = float(weight_decay);
  task.values = values.data_ptr<float>();
  task.momenta = momenta.data_ptr<float>();
  C10_CUDA_CHECK(cuda::descend(task, stream_now()));
}

}  // namespace keel::lab
