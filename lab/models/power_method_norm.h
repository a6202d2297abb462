#pragma once

#include "keel/torch/nn.h"
#include "lab/models/power_method.h"

namespace keel::lab {

/// A whitening layer with the power method's eigenvectors, differentiated by unrolling it: the baseline.
/// Everything but the step on a batch's statistics is the library's. Algorithm1's Rayleigh condition reads
/// here: stop where an eigenvalue rises above the one before.
class PowerMethodNormImpl : public keel::nn::WhiteningImpl {
 public:
  PowerMethodNormImpl(const keel::nn::WhiteningOptions& options, const LayerMap& map,
                      const PowerMethod& method);
  void pretty_print(std::ostream& stream) const override;

 private:
  Whitened batch_step(const torch::Tensor& input, const torch::Tensor& residual, bool relu,
                      const keel::nn::ProcessGroup& processes) const override;

  LayerMap map_;
  PowerMethod method_;
};

}  // namespace keel::lab
