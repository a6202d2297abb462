#pragma once

// spectral and spectral_backward for large batches with n <= 4, one thread per matrix.

#include "cuda/matrix/tiny.cuh"
#include "cuda/spectral/device_spectrum.cuh"

namespace keel::cuda {

template <typename T>
struct SpectralBackwardArguments {
  SpectralMap<T> map;
  DeviceRule<T> rule;
  const T* values;
  Matrices<const T> vectors;
  const std::int64_t* rank;
  Matrices<const T> dL_dresult;
  Matrices<T> dL_dmatrix;
};

namespace tiny {

/// A thread's own spectrum in registers: all indices are compile-time constants.
template <typename T, int N>
struct Spectrum {
  T l[N], x[N], f[N];
  DeviceSpectrum<T> device;

  __device__ Spectrum(const Share& share, const SpectralMap<T>& map, const T* values,
                      const std::int64_t* rank)
      : device(map, N, read(share, values), rank != nullptr ? rank[share.index()] : N, x, f) {
    bool defined = true;
#pragma unroll
    for (int i = 0; i < N; ++i) defined = device.read(i) && defined;
#pragma unroll
    for (int i = 0; i < N; ++i)
      if (!defined) device.set_nan(i);
  }
  Spectrum(const Spectrum&) = delete;  // `device` points to this object's members

 private:
  __device__ const T* read(const Share& share, const T* values) {
#pragma unroll
    for (int i = 0; i < N; ++i) l[i] = values[share.index() * N + i];
    return l;
  }
};

template <typename T, int N>
__global__ void __launch_bounds__(kThreads)
    spectral_kernel(SpectralMap<T> map, const T* values, Matrices<const T> vectors,
                    const std::int64_t* rank, Matrices<T> result) {
  __shared__ Tile<T, N, N> tile;
  const Share share(vectors.batch);
  tile.fetch(share, rectangles(vectors));
  __syncthreads();
  if (share.has_one()) {
    const Spectrum<T, N> spectrum(share, map, values, rank);
    Registers<T, N> v;
    v.take(tile);
#pragma unroll
    for (int i = 0; i < N; ++i)
#pragma unroll
      for (int j = 0; j <= i; ++j) {
        T sum = 0;
#pragma unroll
        for (int k = 0; k < N; ++k) sum += v.at[i][k] * spectrum.f[k] * v.at[j][k];
        tile(i, j) = sum;
        tile(j, i) = sum;
      }
  }
  __syncthreads();
  tile.put(share, rectangles(result));
}

template <typename T, int N>
__global__ void __launch_bounds__(kThreads)
    spectral_backward_kernel(SpectralBackwardArguments<T> a) {
  __shared__ Tile<T, N, N> basis, gradient;
  const Share share(a.vectors.batch);
  basis.fetch(share, rectangles(a.vectors));
  gradient.fetch(share, rectangles(a.dL_dresult));
  __syncthreads();
  if (share.has_one()) {
    const Spectrum<T, N> spectrum(share, a.map, a.values, a.rank);
    Registers<T, N> v, c, w;
    v.take(basis);
#pragma unroll
    for (int i = 0; i < N; ++i)
#pragma unroll
      for (int j = 0; j <= i; ++j)
        c.at[i][j] = c.at[j][i] = small::mean(gradient(i, j), gradient(j, i));
    c = transposed_times(c, v);  // c is symmetric
    c = transposed_times(v, c);
#pragma unroll
    for (int i = 0; i < N; ++i)
#pragma unroll
      for (int j = 0; j <= i; ++j)
        w.at[i][j] = w.at[j][i] =
            small::mean(c.at[i][j], c.at[j][i]) * spectrum.device.kernel(a.rule, i, j);
    out_of_basis(v, w, basis);
  }
  __syncthreads();
  basis.put(share, rectangles(a.dL_dmatrix));
}

}  // namespace tiny
}  // namespace keel::cuda
