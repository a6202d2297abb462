#pragma once

#include "keel/torch/nn.h"
#include "lab/models/baselines.h"

namespace keel::lab {

/// A whitening layer whose matrix comes from a baseline. Only the computation from batch statistics differs from the
/// library's layer. For PowerMethod, Algorithm1's Rayleigh condition means: stop at the first eigenvalue that is larger
/// than the one before. NewtonSchulz has neither eigenvalues() nor kept().
class BaselineNormImpl : public keel::nn::WhiteningImpl {
 public:
  BaselineNormImpl(const keel::nn::WhiteningOptions& options, const LayerMap& map,
                   const Baseline& method);
  void pretty_print(std::ostream& stream) const override;

 private:
  Whitened batch_step(const torch::Tensor& input, const torch::Tensor& residual,
                      keel::nn::Activation activation,
                      const keel::nn::ProcessGroup& processes) const override;

  LayerMap map_;
  Baseline method_;
};

}  // namespace keel::lab
