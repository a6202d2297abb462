#include "keel/error.h"
#include "lab/data/fused_augment.h"

namespace keel::lab {

bool fuses_augment(const torch::Tensor&, const torch::Tensor&) { return false; }

torch::Tensor fused_augment(const torch::Tensor&, const torch::Tensor&, const torch::Tensor&,
                            std::int64_t, const AugmentOptions&) {
  throw Error("keel::lab::fused_augment: this build has no CUDA kernels");
}

}  // namespace keel::lab
