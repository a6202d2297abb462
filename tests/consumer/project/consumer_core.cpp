// A program that uses only the installed core: decomposes a batch and reconstructs it.

#include <keel/eigh.h>
#include <keel/gradient_rule.h>
#include <keel/version.h>

#include <cmath>
#include <cstdio>

int main() {
  const double matrix[4] = {2, 1, 1, 2};
  double values[2], vectors[4], dL_dmatrix[4];
  keel::EighStatus status;
  keel::cpu::eigh<double>(keel::contiguous(matrix, 1, 2), values, keel::contiguous(vectors, 1, 2),
                          keel::EighOrder::ascending, &status, keel::threads());

  // The sum of the eigenvalues is the trace, so its gradient is the identity.
  const double dL_dvalues[2] = {1, 1};
  keel::cpu::eigh_backward<double>(keel::PowerIteration{}, values,
                                   keel::contiguous<const double>(vectors, 1, 2), dL_dvalues, {},
                                   keel::contiguous(dL_dmatrix, 1, 2));

  const auto near = [](double a, double b) { return std::abs(a - b) < 1e-14; };
  const bool right = status == keel::EighStatus::converged && near(values[0], 1) &&
                     near(values[1], 3) && near(dL_dmatrix[0], 1) && near(dL_dmatrix[1], 0) &&
                     near(dL_dmatrix[2], 0) && near(dL_dmatrix[3], 1);
  std::printf("keel %s, core: %s\n", KEEL_VERSION, right ? "right" : "WRONG");
  return right ? 0 : 1;
}
