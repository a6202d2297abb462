#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <string>
#include <vector>

#include "lab/storage/safetensors.h"

namespace keel::lab {

/// A module's parameters, gradients and momenta, each in one buffer, so that an optimiser step is a few operations on
/// whole buffers for any number of parameters.
///
/// The module's parameters become views of `values`. Copy into them; never replace them.
class FlatParameters {
 public:
  /// `channels_last` is the memory format of convolution weights. The module must be on its training device, with
  /// parameters of one type.
  FlatParameters(torch::nn::Module& module, bool channels_last);

  /// Rounds all values to bfloat16_values, in one pass.
  void update_bfloat16();

  /// Scope in which the module's convolutions and linear layers use bfloat16_values, which must be up to date, for their
  /// weights. Autocast computes the same numbers with one pass per weight. Backward may run after the scope;
  /// gather_gradients() finds the gradients.
  class Bfloat16Weights {
   public:
    Bfloat16Weights(FlatParameters& parameters, torch::nn::Module& module);
    ~Bfloat16Weights();
    Bfloat16Weights(const Bfloat16Weights&) = delete;
    Bfloat16Weights& operator=(const Bfloat16Weights&) = delete;

   private:
    void exchange(torch::Tensor& weight, FlatParameters& parameters);
    std::vector<std::pair<torch::Tensor*, torch::Tensor>>
        own_;  ///< replaced members and their original weights
  };

  /// Drops gradients, so that backward assigns new ones instead of accumulating.
  void clear_gradients();
  /// Moves backward's gradients into `gradients`. Missing ones become zero. With `not_finite` this is one GPU launch,
  /// which also sets the flag if a gradient is not finite.
  void gather_gradients(const torch::Tensor& not_finite = {});

  /// Where the first `count` parameters end in the buffers.
  std::int64_t end_of(std::size_t count) const { return offsets_[count]; }
  /// In the parameters' shapes and order, with their names.
  NamedTensors named_momenta() const;

  std::int64_t size() const { return values.numel(); }

  torch::Tensor values, gradients, momenta;  ///< one dimension each
  torch::Tensor bfloat16_values;             ///< undefined before update_bfloat16()

 private:
  torch::Tensor shaped(const torch::Tensor& flat, std::size_t index) const;
  torch::Tensor flattened(const torch::Tensor& gradient) const;
  const torch::Tensor& gradient_of(std::size_t index) const;
  bool in_channels_last_order(const torch::Tensor& tensor) const {
    return channels_last_ && tensor.dim() == 4;
  }

  bool channels_last_;
  std::vector<std::string> names_;
  std::vector<torch::Tensor> parameters_;
  std::vector<std::int64_t> offsets_;    ///< one per parameter, and the end
  std::vector<torch::Tensor> bfloat16_;  ///< copies of parameters, autograd leaves or undefined
};

/// Stochastic gradient descent as PyTorch defines it, without host synchronisation:
///     m <- momentum m + g + weight_decay p,    p <- p - rate m
/// `rate` is a tensor on the device. If `halted` is true, the parameters stay bitwise the same, whatever the
/// gradients are.
void descend(FlatParameters& parameters, const torch::Tensor& rate, const torch::Tensor& halted,
             double momentum, double weight_decay);

}  // namespace keel::lab
