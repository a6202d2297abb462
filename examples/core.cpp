// The core without torch: M^(-1/2) of a batch of matrices, and the gradient of one of its entries.

#include <keel/eigh.h>
#include <keel/spectral.h>

#include <cstdint>
#include <cstdio>
#include <vector>

int main() {
  // Two 3 x 3 matrices, one after another: the identity, whose eigenvalues are all equal, and diag(1, 4, 4).
  const std::vector<float> M = {1, 0, 0, 0, 1, 0, 0, 0, 1, 1, 0, 0, 0, 4, 0, 0, 0, 4};
  const std::int64_t batch = 2, n = 3;
  std::vector<float> values(batch * n), vectors(batch * n * n), root(batch * n * n);
  const std::vector<std::int64_t> rank(batch, n);  // keep every eigenvalue
  const keel::Executor threads = keel::threads();  // one per core; leave it out for one thread

  // Views of memory that you own. Forward: eigh, then f of the eigenvalues.
  const auto V = keel::contiguous(vectors.data(), batch, n);
  keel::cpu::eigh<float>(keel::contiguous(M.data(), batch, n), values.data(), V,
                         keel::EighOrder::descending, nullptr, threads);
  const keel::SpectralFunction inv_sqrt{keel::SpectralFunction::Kind::inv_sqrt};
  keel::cpu::spectral<float>(inv_sqrt, values.data(), V, rank.data(),
                             keel::contiguous(root.data(), batch, n), threads);

  // Backward: L = root[1][2] of each matrix. The gradient is exact although eigenvalues repeat.
  std::vector<float> dL_droot(batch * n * n, 0), dL_dM(batch * n * n);
  for (std::int64_t b = 0; b < batch; ++b) dL_droot[b * n * n + 1 * n + 2] = 1;
  keel::cpu::spectral_backward<float>(inv_sqrt, keel::Exact{}, values.data(), V, rank.data(),
                                      keel::contiguous<const float>(dL_droot.data(), batch, n),
                                      keel::contiguous(dL_dM.data(), batch, n), threads);

  for (std::int64_t b = 0; b < batch; ++b)
    std::printf("M^(-1/2)[1][1] = %.3f, dL_dM[1][2] = %.5f\n", root[b * n * n + 1 * n + 1],
                dL_dM[b * n * n + 1 * n + 2]);
}
