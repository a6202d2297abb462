#include "modules/sum_over.h"

namespace keel::nn {

void sum_over(const ProcessGroup& group, torch::Tensor& tensor) {
  try {
    group.sum(tensor);
  } catch (const std::exception& error) {
    const auto* torchs = dynamic_cast<const c10::Error*>(&error);
    TORCH_CHECK(false, "keel::nn: the sum over ", group.size(), " processes failed in process ",
                group.process(), " (has another process stopped, or skipped this layer?): ",
                torchs != nullptr ? torchs->what_without_backtrace() : error.what());
  }
}

void check_samples(const ProcessGroup& group, const torch::Tensor& count) {
  if (!count.is_cpu()) return;
  const double samples = count.item<double>();
  TORCH_CHECK_VALUE(samples > 1,
                    "keel::nn: expected more than 1 value per channel when training, got ",
                    std::int64_t(samples), " in ", group.size(), " processes");
}

}  // namespace keel::nn
