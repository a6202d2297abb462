#include "keel/error.h"
#include "lab/train/fused_step.h"

namespace keel::lab {
namespace {

[[noreturn]] void refuse() {
  throw Error("keel::lab: a fused step was asked for; this build has no CUDA kernels");
}

}  // namespace

bool has_fused_step() { return false; }
void fused_gather(const std::vector<torch::Tensor>&, const torch::Tensor&, const torch::Tensor&) {
  refuse();
}
void fused_measure(const FusedReadings&, const torch::Tensor&, const torch::Tensor&,
                   const torch::Tensor&, const torch::Tensor&) {
  refuse();
}
void fused_descend(const torch::Tensor&, const torch::Tensor&, const torch::Tensor&,
                   const torch::Tensor&, const torch::Tensor&, double, double) {
  refuse();
}

}  // namespace keel::lab
