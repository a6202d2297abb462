#include <ATen/cuda/CUDAEvent.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <array>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "keel/error.h"
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
  bool late;
};

/// What a weight's gradient is made of.
struct Operands {
  Tensor dL_doutput, input, weight;
  Window window;
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
                  std::int64_t padding, bool late) override;
  void compute_late() override;
  void join() override;

  /// Queues the weight's gradient. The current stream has computed its operands.
  void compute(const Operands& operands);

 private:
  /// Keeps the operands until the second stream is done with them: their memory belongs to the first one.
  struct Running {
    Tensor dL_doutput, input;
    at::cuda::CUDAEvent done;
  };
  /// Limits the operands that are held. The first stream waits for the oldest.
  static constexpr std::size_t kMostRunning = 4;

  void finish(const Operands& operands);
  void leave(const Operands& operands);
  void wait_for_oldest();

  std::optional<c10::cuda::CUDAStream> second_;
  std::deque<Running> running_;
  std::vector<std::pair<Tensor, Tensor>> finished_;  ///< weight, its gradient
  std::vector<Operands> late_;                       ///< of the last backward pass
};

struct Convolution : torch::autograd::Function<Convolution> {
  static Tensor forward(AutogradContext* context, const Tensor& input, const Tensor& weight,
                        const Window& window, OnSecondStream* gradients) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    context->save_for_backward({input});
    context->saved_data["weight"] = weight;
    context->saved_data["stride"] = window.stride;
    context->saved_data["padding"] = window.padding;
    context->saved_data["late"] = window.late;
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
                        context->saved_data["padding"].toInt(),
                        context->saved_data["late"].toBool()};
    auto* gradients = reinterpret_cast<OnSecondStream*>(context->saved_data["gradients"].toInt());
    gradients->compute({dL_doutput, input.detach(), weight, window});
    Tensor dL_dinput;
    if (context->needs_input_grad(0))
      dL_dinput = gradients_of(dL_doutput, input, weight, window, true, false)[0];
    return {dL_dinput, Tensor(), Tensor(), Tensor()};
  }
};

Tensor OnSecondStream::convolve(const Tensor& input, const Tensor& weight, std::int64_t stride,
                                std::int64_t padding, bool late) {
  return Convolution::apply(input.to(weight.scalar_type()), weight, Window{stride, padding, late},
                            this);
}

void OnSecondStream::finish(const Operands& operands) {
  const torch::NoGradGuard no_grad;
  const auto& [dL_doutput, input, weight, window] = operands;
  Tensor gradient = gradients_of(dL_doutput, input, weight, window, false, true)[1];
  if (take_)
    take_(weight, gradient);
  else
    finished_.emplace_back(weight, std::move(gradient));
}

void OnSecondStream::leave(const Operands& operands) {
  const auto same = std::ranges::find_if(
      late_, [&](const Operands& other) { return other.weight.is_same(operands.weight); });
  if (same == late_.end()) {
    late_.push_back(operands);
  } else {
    // A captured step reads the operands of the one before it where they were when it was captured.
    require(
        same->input.data_ptr() == operands.input.data_ptr() &&
            same->dL_doutput.data_ptr() == operands.dL_doutput.data_ptr(),
        "keel::lab::WeightGradients: expected the operands of a late gradient to stay in place");
    *same = operands;
  }
  if (take_) take_(operands.weight, {});
}

void OnSecondStream::compute_late() {
  for (const Operands& operands : late_) finish(operands);
}

void OnSecondStream::compute(const Operands& operands) {
  if (operands.window.late) return leave(operands);
  if (!capturing()) return finish(operands);
  if (running_.size() == kMostRunning) wait_for_oldest();
  at::cuda::CUDAEvent ready;
  ready.record();
  // Low priority, because nothing waits for it. The step's own stream has high priority (graph_cuda.cpp).
  if (!second_) second_ = c10::cuda::getStreamFromPool(/*isHighPriority=*/false);
  ready.block(*second_);
  const c10::cuda::CUDAStreamGuard guard(*second_);
  finish(operands);
  running_.push_back({operands.dL_doutput, operands.input, {}});
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
