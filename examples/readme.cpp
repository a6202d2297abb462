#include <keel/torch/keel.h>
#include <torch/torch.h>

#include <cmath>
#include <cstdio>

// Prints the size of a gradient where an eigenvalue repeats: 1.1723, 0.7071 and nan.
int main() {
  keel::use_all_cores();
  const auto M = torch::diag(torch::tensor({2.0, 1.0, 1.0}, torch::kDouble)).requires_grad_();
  const auto print = [&](const char* name, const torch::Tensor& loss) {
    const auto dL_dM = torch::autograd::grad({loss}, {M})[0];
    std::printf("%-20s %.4f\n", name, std::abs(dL_dM.norm().item<double>()));
  };

  const auto S = keel::inv_sqrtm(M);  // exact gradient, also at repeated eigenvalues
  print("keel::inv_sqrtm", S.sum());

  const auto [values, vectors] = keel::eigh(M, keel::PowerIteration{.terms = 19});
  print("keel::eigh", vectors.sum());  // the paper's gradient: bounded

  print("torch::linalg_eigh", std::get<1>(torch::linalg_eigh(M)).sum());
}
