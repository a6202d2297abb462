#include <keel/torch/keel.h>
#include <torch/torch.h>

#include <iostream>

int main() {
  const auto M = torch::eye(3).requires_grad_();
  keel::inv_sqrtm(M)[0][1].backward();
  std::cout << M.grad()[0][1].item<float>() << "\n";  // -0.25
}
