#include <string>

#include "eigh_jacobi.cuh"
#include "keel/error.h"
#include "shape.h"

namespace keel::cuda {

namespace {

/// Teams of N columns, SPLIT threads a column, as many to a block as make a warp at least.
template <typename T, int N, int SPLIT>
cudaError_t launch(Matrices<const T> matrices, T* values, Matrices<T> vectors, EighStatus* status,
                   cudaStream_t stream) {
  constexpr int kTeams = N * SPLIT >= 32 ? 1 : 32 / (N * SPLIT);
  return launch_jacobi<T, N, SPLIT, kTeams>(matrices, values, vectors, status, stream);
}

/// Few matrices leave the card idle, so their columns are split for the sake of latency; many fill it,
/// and a thread a column wastes the least. Measured: bench/NOTES.md.
cudaError_t solve(Matrices<const float> m, float* values, Matrices<float> vectors,
                  EighStatus* status, cudaStream_t stream) {
  const bool many = m.batch > 1024;
  if (m.n <= 4) return launch<float, 4, 2>(m, values, vectors, status, stream);
  if (m.n <= 8)
    return many ? launch<float, 8, 1>(m, values, vectors, status, stream)
                : launch<float, 8, 4>(m, values, vectors, status, stream);
  if (m.n <= 16)
    return many ? launch<float, 16, 1>(m, values, vectors, status, stream)
                : launch<float, 16, 2>(m, values, vectors, status, stream);
  if (m.n <= 32)
    return many ? launch<float, 32, 1>(m, values, vectors, status, stream)
                : launch<float, 32, 4>(m, values, vectors, status, stream);
  return launch<float, 64, 2>(m, values, vectors, status, stream);
}

cudaError_t solve(Matrices<const double> m, double* values, Matrices<double> vectors,
                  EighStatus* status, cudaStream_t stream) {
  if (m.n <= 8) return launch<double, 8, 2>(m, values, vectors, status, stream);
  if (m.n <= 16) return launch<double, 16, 2>(m, values, vectors, status, stream);
  return launch<double, 32, 4>(m, values, vectors, status, stream);
}

}  // namespace

template <typename T>
void eigh(Matrices<const T> matrices, T* values, Matrices<T> vectors, EighStatus* status,
          Stream stream) {
  constexpr std::int64_t kLargest = sizeof(T) == 4 ? 64 : 32;
  if (matrices.n < 0 || matrices.batch < 0)
    throw Error("keel::cuda::eigh: expected n >= 0 and batch >= 0, got " + shape(matrices));
  require_same_shape("keel::cuda::eigh", "vectors", matrices, vectors);
  if (matrices.n > kLargest)
    throw Error("keel::cuda::eigh: expected n <= " + text(kLargest) +
                (sizeof(T) == 4 ? " in float32" : " in float64") + ", got " + text(matrices.n));
  if (matrices.n == 0 || matrices.batch == 0) return;
  const cudaError_t error =
      solve(matrices, values, vectors, status, static_cast<cudaStream_t>(stream.handle));
  if (error != cudaSuccess)
    throw Error(std::string("keel::cuda::eigh: expected to launch, got ") +
                cudaGetErrorString(error));
}

template void eigh(Matrices<const float>, float*, Matrices<float>, EighStatus*, Stream);
template void eigh(Matrices<const double>, double*, Matrices<double>, EighStatus*, Stream);

}  // namespace keel::cuda
