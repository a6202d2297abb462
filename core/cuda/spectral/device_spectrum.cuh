#pragma once

// The eigenvalues of one matrix as f sees them, and the kernel F of spectral_backward, on the
// device. The numbers are in shared memory (n <= 64) or in global memory.

#include "cuda/gradient_rule/device_rule.cuh"
#include "cuda/matrix/small.cuh"
#include "formulas/divided_difference.h"

namespace keel::cuda {

template <typename T>
struct DeviceSpectrum {
  SpectralMap<T> map;
  int n, rank;
  T largest;
  const T* l;  ///< the eigenvalues as given
  T* x;        ///< max(l, floor) with noise around zero set to zero
  T* f;        ///< f(x), 0 for dropped eigenvalues

  __device__ DeviceSpectrum(const SpectralMap<T>& function, int size, const T* values,
                            std::int64_t kept, T* points, T* images)
      : map(function),
        n(size),
        rank(int(kept < size ? kept : size)),
        largest(largest_magnitude(size, values, function.floor)),
        l(values),
        x(points),
        f(images) {}

  /// Computes x and f of eigenvalue i. Returns false if f is not defined there.
  __device__ bool read(int i) const {
    x[i] = map.without_noise(l[i], n, largest);
    f[i] = i < rank ? map.value(x[i]) : T(0);
    return !isnan(f[i]);
  }
  /// For a matrix with a kept eigenvalue outside the domain of f: makes all its results NaN.
  __device__ void set_nan(int i) const { x[i] = f[i] = std::numeric_limits<T>::quiet_NaN(); }

  /// F_ij, so that dL_dmatrix = V (F o V^T C V) V^T.
  __device__ T kernel(const DeviceRule<T>& rule, int i, int j) const {
    const int a = i < j ? i : j, b = i < j ? j : i;
    if (rule.exact) {
      if (a >= rank) return 0;
      if (b < rank) return map.difference(x[a], x[b], f[a], f[b]);
      return 2 * rule.weight(map.floor, largest, l[a], l[b], T(0), f[a]);
    }
    if (a >= rank) return 0;
    if (a == b)
      return slope_above(map.floor, rule.textbook, l[a]) * map.difference(x[a], x[a], f[a], f[a]);
    // With g = 2 C V f, the pair's B_ij is 2 (V^T C V)_ij f_j.
    return 2 * rule.weight(map.floor, largest, l[a], l[b], f[b], f[a]);
  }
};

namespace small {

/// The spectrum of the team's matrix, in three vectors of shared memory. A null `rank` keeps
/// everything.
template <typename T, int N, typename Threads>
__device__ DeviceSpectrum<T> read_spectrum(const Threads& team, const SpectralMap<T>& map,
                                           const T* values, const std::int64_t* rank,
                                           T (*vectors)[N]) {
  const std::int64_t kept = rank != nullptr ? rank[team.index] : team.n;
  const bool mine = team.thread() < team.n;
  if (mine) vectors[0][team.thread()] = values[team.index * team.n + team.thread()];
  team.sync();
  const DeviceSpectrum<T> spectrum(map, team.n, vectors[0], kept, vectors[1], vectors[2]);
  const bool undefined = team.any(mine && !spectrum.read(team.thread()));
  if (undefined && mine) spectrum.set_nan(team.thread());
  team.sync();
  return spectrum;
}

/// c <- V (F o V^T sym(c) V) V^T. Overwrites p.
template <typename T, int N>
__device__ void spectral_gradient(const SmallTeam<T, N>& team, const DeviceSpectrum<T>& spectrum,
                                  const DeviceRule<T>& rule, const T* v, const T* u, T* c, T* p) {
  into_basis(team, v, u, c, p);
  team.template for_each_entry<1>(
      [&](int i, int j) { c[i * SmallTeam<T, N>::kStride + j] *= spectrum.kernel(rule, i, j); });
  team.sync();
  out_of_basis(team, v, u, c, p);
}

}  // namespace small

/// Computes x and f of every matrix of a batch, in global memory. One block per matrix.
template <typename T>
__global__ void __launch_bounds__(256) spectrum_kernel(SpectralMap<T> map, int n, const T* values,
                                                       const std::int64_t* rank, T* x, T* f) {
  const std::int64_t b = blockIdx.x;
  const DeviceSpectrum<T> spectrum(map, n, values + b * n, rank != nullptr ? rank[b] : n, x + b * n,
                                   f + b * n);
  bool undefined = false;
  for (int i = int(threadIdx.x); i < n; i += 256) undefined = !spectrum.read(i) || undefined;
  if (__syncthreads_or(undefined))
    for (int i = int(threadIdx.x); i < n; i += 256) spectrum.set_nan(i);
}

template <typename T>
void queue_spectrum(const char* operation, const Stream& stream, const SpectralMap<T>& map,
                    std::int64_t batch, std::int64_t n, const T* values, const std::int64_t* rank,
                    T* x, T* f) {
  spectrum_kernel<<<unsigned(batch), 256, 0, native(stream)>>>(map, int(n), values, rank, x, f);
  check_launch(operation);
}

}  // namespace keel::cuda
