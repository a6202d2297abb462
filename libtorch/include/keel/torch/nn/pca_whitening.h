#pragma once

#include "keel/torch/nn/whitening.h"

namespace keel::nn {

using PcaWhiteningOptions = WhiteningOptions;

/// Whitening that leaves the channels in the order of the principal directions. Default rank:
/// FullRank. Its output turns with the eigenvectors from batch to batch, so no rule is exact at
/// repeated eigenvalues (Exact means Masked) and the running matrix is an average over turning
/// bases: ZcaWhitening is the layer to train with.
class PcaWhiteningImpl : public WhiteningImpl {
 public:
  explicit PcaWhiteningImpl(const PcaWhiteningOptions& options);
  std::shared_ptr<torch::nn::Module> clone(const OptionalDevice& device = {}) const override {
    return cloned<PcaWhiteningImpl>(device);
  }
};
class PcaWhitening : public WhiteningHolder<PcaWhiteningImpl> {
  using WhiteningHolder<PcaWhiteningImpl>::WhiteningHolder;
};

}  // namespace keel::nn
