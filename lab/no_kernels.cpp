// For builds without the lab's CUDA kernels, in place of the files fused_*_cuda.cpp.

#include "keel/error.h"
#include "lab/models/fused_norm.h"
#include "lab/train/fused_step.h"

namespace keel::lab {
namespace {

using torch::Tensor;

[[noreturn]] void refuse(const char* what) {
  throw Error(std::string(what) + ": this build has no CUDA kernels");
}

}  // namespace

bool fuses(const BatchNormImpl&, const Tensor&, const Tensor&) { return false; }
Forked fused_norm(BatchNormImpl&, const Tensor&, const Tensor&, bool) { refuse("fused_norm"); }

bool has_fused_step() { return false; }
void fused_gather(const std::vector<GradientPiece>&, const Tensor&, const Tensor&) {
  refuse("fused_gather");
}
void fused_descend(const DescentBuffers&, const Tensor&, double, double) {
  refuse("fused_descend");
}

}  // namespace keel::lab
