#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <string>
#include <vector>

#include "lab/storage/safetensors.h"

namespace keel::lab {

/// A module's parameters, gradients and momenta, each in one buffer, so that an optimiser's step is
/// a few operations on whole buffers, whatever the number of parameters.
///
/// The module's parameters become views of `values`: load into them, never replace them.
class FlatParameters {
 public:
  /// `channels_last`: convolutions' weights take that memory order. The module must be on the device
  /// it will train on, its parameters of one type.
  FlatParameters(torch::nn::Module& module, bool channels_last);

  /// While it lives, the module's convolutions and linear layers read copies of their weights in bfloat16, made from
  /// `values` at its start: one pass instead of one for each weight, and the numbers that autocast makes. Backward may
  /// come after it; gather_gradients() finds the gradients.
  class Bfloat16Weights {
   public:
    Bfloat16Weights(FlatParameters& parameters, torch::nn::Module& module);
    ~Bfloat16Weights();
    Bfloat16Weights(const Bfloat16Weights&) = delete;
    Bfloat16Weights& operator=(const Bfloat16Weights&) = delete;

   private:
    void exchange(torch::Tensor& weight, FlatParameters& parameters);
    std::vector<std::pair<torch::Tensor*, torch::Tensor>> own_;  ///< where, and what was there
  };

  /// Forgets gradients, so that backward leaves fresh ones instead of adding.
  void clear_gradients();
  /// Copies what backward left into `gradients` and lets go of it. Missing ones are zero. `not_finite`: on a GPU, in one
  /// launch that sets it where a gradient is not (fused_step.h).
  void gather_gradients(const torch::Tensor& not_finite = {});

  /// The part of `gradients` that belongs to the first `count` parameters.
  torch::Tensor leading_gradients(std::size_t count) const;
  /// In the parameters' shapes and order, under their names.
  NamedTensors named_momenta() const;

  const std::vector<std::string>& names() const { return names_; }
  std::int64_t size() const { return values.numel(); }

  torch::Tensor values, gradients, momenta;  ///< one dimension each

 private:
  torch::Tensor shaped(const torch::Tensor& flat, std::size_t index) const;
  const torch::Tensor& gradient_of(std::size_t index) const;
  bool in_channels_last_order(const torch::Tensor& tensor) const {
    return channels_last_ && tensor.dim() == 4;
  }

  bool channels_last_;
  std::vector<std::string> names_;
  std::vector<torch::Tensor> parameters_;
  std::vector<std::int64_t> offsets_;  ///< one more than parameters
  std::vector<torch::Tensor> pieces_;  ///< kept to save an allocation a step
  torch::Tensor bfloat16_values_;
  std::vector<torch::Tensor> bfloat16_;  ///< copies of parameters, leaves of autograd; or nothing
};

/// Stochastic gradient descent as PyTorch defines it, without a host in the loop:
///     m <- momentum m + g + weight_decay p,    p <- p - rate m
/// with `rate` a tensor on the device. Where `halted` is true the parameters stay as they are, to
/// the last bit, whatever the gradients hold.
void descend(FlatParameters& parameters, const torch::Tensor& rate, const torch::Tensor& halted,
             double momentum, double weight_decay);

}  // namespace keel::lab
