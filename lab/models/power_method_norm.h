#pragma once

#include "keel/torch/nn.h"
#include "lab/models/power_method.h"

namespace keel::lab {

/// The baseline: a whitening layer with the power method's eigenvectors, differentiated by unrolling. Only the
/// computation from batch statistics differs from the library's layer. Here Algorithm1's Rayleigh condition means:
/// stop at the first eigenvalue that is larger than the one before.
class PowerMethodNormImpl : public keel::nn::WhiteningImpl {
 public:
  PowerMethodNormImpl(const keel::nn::WhiteningOptions& options, const LayerMap& map,
                      const PowerMethod& method);
  void pretty_print(std::ostream& stream) const override;

 private:
  Whitened batch_step(const torch::Tensor& input, const torch::Tensor& residual,
                      keel::nn::Activation activation,
                      const keel::nn::ProcessGroup& processes) const override;

  LayerMap map_;
  PowerMethod method_;
};

}  // namespace keel::lab
