// A program that uses the installed adapter: a gradient through the inverse square root of the identity, where every
// eigenvalue is repeated.

#include <keel/torch/keel.h>

#include <cstdio>

int main() {
  const auto matrix = torch::eye(3, torch::dtype(torch::kDouble)).requires_grad_();
  const auto [values, vectors] = keel::eigh(matrix, keel::PowerIteration{.terms = 19});
  keel::inv_sqrtm(matrix).sum().backward();

  // d(M^(-1/2)) = -dM / 2 at the identity.
  const bool right = torch::allclose(values, torch::ones({3}, torch::kDouble)) &&
                     torch::allclose(matrix.grad(), torch::full({3, 3}, -0.5, torch::kDouble));
  std::printf("keel, torch: %s\n", right ? "right" : "WRONG");
  return right ? 0 : 1;
}
