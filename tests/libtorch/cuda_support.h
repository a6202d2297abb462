#pragma once

// A generic comparison of CPU and CUDA: runs a function of tensors on the CPU in float64, on the CPU in the type
// under test and on CUDA in that type, and compares outputs and gradients.

#include <torch/torch.h>

#include <limits>

#include "layers_support.h"

namespace keel::test {

using Function = std::function<Tensors(const Tensors&)>;

inline Tensor on_cuda(const Tensor& tensor) { return tensor.to(at::kCUDA); }
inline Tensor on_cpu(const Tensor& tensor) { return tensor.detach().to(at::kCPU); }

struct Evaluated {
  Tensors outputs, gradients;
};

/// Gradients of all differentiable outputs, along seeded random directions.
inline Evaluated evaluated(const Function& function, const Tensors& inputs, at::Device device,
                           at::ScalarType type) {
  Tensors leaves;
  for (const Tensor& input : inputs) {
    const bool floating = input.is_floating_point();
    Tensor leaf = input.detach().to(device, floating ? type : input.scalar_type(),
                                    /*non_blocking=*/false, /*copy=*/true);
    leaves.push_back(floating ? leaf.requires_grad_(true) : leaf);
  }
  Evaluated result;
  Tensors reached, directions;
  for (const Tensor& output : function(leaves)) {
    result.outputs.push_back(on_cpu(output));
    if (!output.requires_grad()) continue;
    reached.push_back(output);
    const Tensor drawn = random(output.sizes(), 900 + directions.size());
    directions.push_back(drawn.to(device, output.scalar_type()));
  }
  Tensors wanted;
  for (const Tensor& leaf : leaves)
    if (leaf.requires_grad()) wanted.push_back(leaf);
  if (!reached.empty())
    for (const Tensor& gradient :
         torch::autograd::grad(reached, wanted, directions, /*retain_graph=*/false,
                               /*create_graph=*/false, /*allow_unused=*/true))
      if (gradient.defined()) result.gradients.push_back(on_cpu(gradient));
  return result;
}

inline double epsilon_of(at::ScalarType type) {
  if (type == at::kDouble) return std::numeric_limits<double>::epsilon();
  if (type == at::kFloat) return std::numeric_limits<float>::epsilon();
  return type == at::kHalf ? 0x1p-10 : 0x1p-7;
}

/// CUDA may be a few times as far from float64 as the CPU is in the same type, plus `condition` roundings of the type
/// it computes in (and two of a half type for the results).
inline void expect_twins(const Tensors& cuda, const Tensors& cpu, const Tensors& truth,
                         at::ScalarType type, double condition, const std::string& what) {
  ASSERT_EQ(cuda.size(), truth.size()) << what;
  ASSERT_EQ(cpu.size(), truth.size()) << what;
  for (std::size_t k = 0; k < truth.size(); ++k) {
    SCOPED_TRACE(what + " " + std::to_string(k));
    ASSERT_EQ(cuda[k].sizes(), cpu[k].sizes());
    ASSERT_EQ(cuda[k].scalar_type(), cpu[k].scalar_type());
    if (!truth[k].is_floating_point()) {
      EXPECT_TRUE(torch::equal(cuda[k], cpu[k]));
      continue;
    }
    ASSERT_TRUE(all_finite(truth[k]));
    ASSERT_TRUE(all_finite(cuda[k]));
    const Tensor exact = truth[k].to(at::kDouble);
    const double size = exact.norm().item<double>();
    const auto error = [&](const Tensor& t) {
      return (t.to(at::kDouble) - exact).norm().item<double>();
    };
    const bool half = type == at::kHalf || type == at::kBFloat16;
    const double rounding = half ? condition * epsilon_of(at::kFloat) + 2 * epsilon_of(type)
                                 : condition * epsilon_of(type);
    EXPECT_LE(error(cuda[k]), 6 * error(cpu[k]) + rounding * size);
  }
}

inline void expect_twins(const std::string& name, const Function& function, const Tensors& inputs,
                         double condition,
                         const std::vector<at::ScalarType>& types = {at::kFloat, at::kDouble}) {
  for (const auto type : types) {
    SCOPED_TRACE(name + " in " + c10::toString(type));
    const Evaluated truth = evaluated(function, inputs, at::kCPU, at::kDouble);
    const Evaluated cpu = evaluated(function, inputs, at::kCPU, type);
    const Evaluated cuda = evaluated(function, inputs, at::kCUDA, type);
    expect_twins(cuda.outputs, cpu.outputs, truth.outputs, type, condition, "output");
    expect_twins(cuda.gradients, cpu.gradients, truth.gradients, type, condition, "gradient");
  }
}

}  // namespace keel::test
