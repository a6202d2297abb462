#pragma once

#include "keel/torch/nn/whitening.h"

namespace keel::nn {

using ZcaWhiteningOptions = WhiteningOptions;

/// Zero-phase whitening: decorrelates the channels of each group and gives them unit variance, with the least change to
/// the activations. The default rank is LeadingReliable with the layer's eps.
class ZcaWhiteningImpl : public WhiteningImpl {
 public:
  explicit ZcaWhiteningImpl(const ZcaWhiteningOptions& options);
  std::shared_ptr<torch::nn::Module> clone(const OptionalDevice& device = {}) const override {
    return cloned<ZcaWhiteningImpl>(device);
  }
};
class ZcaWhitening : public WhiteningHolder<ZcaWhiteningImpl> {
  using WhiteningHolder<ZcaWhiteningImpl>::WhiteningHolder;
};

}  // namespace keel::nn
