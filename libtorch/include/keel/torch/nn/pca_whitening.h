#pragma once

#include "keel/torch/nn/whitening.h"

namespace keel::nn {

using PcaWhiteningOptions = WhiteningOptions;

/// Whitening whose output channels are the principal directions, strongest first. Default rank:
/// FullRank. The output depends on the basis inside an eigenspace, so no rule is exact at repeated
/// eigenvalues (Exact means Masked), and the running matrix averages bases that turn from batch to
/// batch. Train with ZcaWhitening instead.
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
