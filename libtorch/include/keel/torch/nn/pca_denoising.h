#pragma once

#include "keel/torch/nn/whitening.h"

namespace keel::nn {

using PcaDenoisingOptions = WhiteningOptions;

/// Standardises the channels and projects each group onto its leading principal directions. The default rank is
/// LeadingEnergy{0.99}. The running matrix is the projector alone; evaluation standardises with the running variance.
class PcaDenoisingImpl : public WhiteningImpl {
 public:
  explicit PcaDenoisingImpl(const PcaDenoisingOptions& options);
  std::shared_ptr<torch::nn::Module> clone(const OptionalDevice& device = {}) const override {
    return cloned<PcaDenoisingImpl>(device);
  }
};
class PcaDenoising : public WhiteningHolder<PcaDenoisingImpl> {
  using WhiteningHolder<PcaDenoisingImpl>::WhiteningHolder;
};

}  // namespace keel::nn
