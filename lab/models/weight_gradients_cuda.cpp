#include <ATen/cuda/CUDAEvent.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/autograd/custom_function.h>

#include <array>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "lab/models/weight_gradients.h"

namespace keel::lab {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

bool capturing() {
  return c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
}

struct Window {
  std::int64_t stride, padding;
};

std::array<Tensor, 2> gradients_of(const Tensor& dL_doutput, const Tensor& input,
                                   const Tensor& weight, const Window& window, bool of_input,
                                   bool of_weight) {
  const std::vector<std::int64_t> stride(2, window.stride), padding(2, window.padding),
      dilation(2, 1), no_padding(2, 0);
  auto all = at::convolution_backward(dL_doutput, input, weight, /*bias_sizes=*/{}, stride, padding,
                                      dilation, /*transposed=*/false, no_padding,
                                      /*groups=*/1, {of_input, of_weight, false});
  return {std::move(std::get<0>(all)), std::move(std::get<1>(all))};
}

class OnSecondStream : public WeightGradients {
 public:
  Tensor convolve(const Tensor& input, const Tensor& weight, std::int64_t stride,
                  std::int64_t padding) override;
  void join() override;

  /// Queues the weight's gradient. The current stream has computed `dL_doutput`.
  void compute(const Tensor& dL_doutput, const Tensor& input, const Tensor& weight,
               const Window& window);

 private:
  /// Keeps the operands until the second stream is done with them: their memory belongs to the first one.
  struct Running {
    Tensor dL_doutput, input;
    at::cuda::CUDAEvent done;
  };
  /// Limits the operands that are held. The first stream waits for the oldest.
  static constexpr std::size_t kMostRunning = 4;

  void wait_for_oldest();

  std::optional<c10::cuda::CUDAStream> second_;
  std::deque<Running> running_;
  std::vector<std::pair<Tensor, Tensor>> finished_;  ///< weight, its gradient
};

struct Convolution : torch::autograd::Function<Convolution> {
  static Tensor forward(AutogradContext* context, const Tensor& input, const Tensor& weight,
                        const Window& window, OnSecondStream* gradients) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    context->save_for_backward({input});
    context->saved_data["weight"] = weight;
    context->saved_data["stride"] = window.stride;
    context->saved_data["padding"] = window.padding;
    context->saved_data["gradients"] = reinterpret_cast<std::int64_t>(gradients);
    const std::vector<std::int64_t> stride(2, window.stride), padding(2, window.padding),
        dilation(2, 1), no_padding(2, 0);
    return at::convolution(input, weight, /*bias=*/{}, stride, padding, dilation,
                           /*transposed=*/false, no_padding, /*groups=*/1);
  }

  static variable_list backward(AutogradContext* context, const variable_list& given) {
    const torch::NoGradGuard no_grad;
    const Tensor &dL_doutput = given[0], input = context->get_saved_variables()[0],
                 weight = context->saved_data["weight"].toTensor();
    const Window window{context->saved_data["stride"].toInt(),
                        context->saved_data["padding"].toInt()};
    auto* gradients = reinterpret_cast<OnSecondStream*>(context->saved_data["gradients"].toInt());
    gradients->compute(dL_doutput, input, weight, window);
    Tensor dL_dinput;
    if (context->needs_input_grad(0))
      dL_dinput = gradients_of(dL_doutput, input, weight, window, true, false)[0];
    return {dL_dinput, Tensor(), Tensor(), Tensor()};
  }
};

Tensor OnSecondStream::convolve(const Tensor& input, const Tensor& weight, std::int64_t stride,
                                std::int64_t padding) {
  return Convolution::apply(input.to(weight.scalar_type()), weight, Window{stride, padding}, this);
}

void OnSecondStream::compute(const Tensor& dL_doutput, const Tensor& input, const Tensor& weight,
                             const Window& window) {
  const auto finish = [&] {
    Tensor gradient = gradients_of(dL_doutput, input, weight, window, false, true)[1];
    if (take_)
      take_(weight, gradient);
    else
      finished_.emplace_back(weight, std::move(gradient));
  };
  if (!capturing()) return finish();
  if (running_.size() == kMostRunning) wait_for_oldest();
  at::cuda::CUDAEvent ready;
  ready.record();
  // Low priority, because nothing waits for it. The step's own stream has high priority (graph_cuda.cpp).
  if (!second_) second_ = c10::cuda::getStreamFromPool(/*isHighPriority=*/false);
  ready.block(*second_);
  const c10::cuda::CUDAStreamGuard guard(*second_);
  finish();
  running_.push_back({dL_doutput, input, {}});
  running_.back().done.record();
}

void OnSecondStream::wait_for_oldest() {
  running_.front().done.block(c10::cuda::getCurrentCUDAStream());
  running_.pop_front();
}

void OnSecondStream::join() {
  while (!running_.empty()) wait_for_oldest();
  for (auto& [weight, gradient] : finished_) weight.mutable_grad() = std::move(gradient);
  finished_.clear();
}

}  // namespace

std::shared_ptr<WeightGradients> make_weight_gradients() {
  return std::make_shared<OnSecondStream>();
}

}  // namespace keel::lab
