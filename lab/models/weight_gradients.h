#pragma once

// Weight gradients of convolutions on a second CUDA stream. Nothing else in a backward pass reads them, so they can run
// beside the gradients of the activations and fill multiprocessors that those leave idle.

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>

namespace keel::lab {

/// One backward pass at a time, inside a CUDA graph capture. Outside of one everything runs on the current stream: cuDNN
/// times its algorithms in the first steps, and must not time them beside other work.
class WeightGradients {
 public:
  virtual ~WeightGradients() = default;

  /// Called with a weight and its gradient, on the stream that has computed it. An undefined gradient says that
  /// compute_late() will compute it.
  using Take = std::function<void(const torch::Tensor& weight, const torch::Tensor& gradient)>;
  void give_to(Take take) { take_ = std::move(take); }

  /// conv2d without a bias. Backward computes the weight's gradient apart and does not hand it to autograd: `take` gets
  /// it, or it is `weight.grad()` after join(). `late`: backward leaves it to compute_late(). Then the input and the
  /// output's gradient must stay in memory, at the same addresses in each pass (BatchNormImpl::keeps).
  virtual torch::Tensor convolve(const torch::Tensor& input, const torch::Tensor& weight,
                                 std::int64_t stride, std::int64_t padding, bool late = false) = 0;

  /// Computes the gradients that the last backward pass left, on the current stream.
  virtual void compute_late() = 0;

  /// Makes the current stream wait for the gradients, but for the late ones.
  virtual void join() = 0;

 protected:
  Take take_;
};

/// Null where LibTorch has no CUDA.
std::shared_ptr<WeightGradients> make_weight_gradients();

}  // namespace keel::lab
