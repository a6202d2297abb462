#pragma once

#include "keel/torch/nn/whitening.h"

namespace keel::nn {

using PcaWhiteningOptions = WhiteningOptions;

/// Whitening whose output channels are the principal directions, strongest first. The default rank is FullRank.
///
/// The output depends on the basis inside an eigenspace. So no rule is exact at repeated eigenvalues (Exact means Masked
/// here), and the running matrix averages bases that rotate from batch to batch. Train with ZcaWhitening instead.
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
