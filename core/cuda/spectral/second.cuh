#pragma once

// cuda::spectral_second_backward: one launch for n <= 64, a dozen for larger matrices.

#include "cuda/matrix/large.cuh"
#include "cuda/spectral/device_spectrum.cuh"

namespace keel::cuda {

inline constexpr const char* kSpectralSecond = "keel::spectral_second_backward";

template <typename T>
struct SecondArguments {
  SpectralMap<T> map;
  DeviceRule<T> exact;
  const T* values;
  Matrices<const T> vectors, dL_dresult, dL2_ddL_dmatrix;
  Matrices<T> dL2_ddL_dresult, dL2_dmatrix;
};

/// sum_k f[l_i, l_k, l_j] (C_ik H_kj + H_ik C_kj) for i <= j, in the eigenbasis. F holds the first
/// differences.
template <typename T>
__device__ T second_difference_sum(const DeviceSpectrum<T>& s, std::int64_t stride, const T* F,
                                   const T* C, const T* H, std::int64_t i, std::int64_t j) {
  T sum = 0;
#pragma unroll 1
  for (std::int64_t k = 0; k < s.n; ++k) {
    // Sort the three indices.
    const std::int64_t a = i < k ? i : k, c = j > k ? j : k, b = i + j + k - a - c;
    const T f_abc =
        s.map.second_difference(s.x[a], s.x[b], s.x[c], F[a * stride + b], F[b * stride + c]);
    sum += f_abc * (C[i * stride + k] * H[j * stride + k] + H[i * stride + k] * C[j * stride + k]);
  }
  return sum;
}

template <typename T, int N>
using SecondMemory = small::Storage<T, N, 6, 3>;

template <typename T, int N>
__global__ void __launch_bounds__(small::SmallTeam<T, N>::kBlockThreads,
                                  small::SmallTeam<T, N>::kBlocks)
    small_second_kernel(SecondArguments<T> a) {
  constexpr int kStride = small::SmallTeam<T, N>::kStride;
  const small::SmallTeam<T, N> team(a.vectors.batch, a.vectors.n);
  auto& shared = small::storage<SecondMemory<T, N>>(team);
  T *const v = shared.matrix[0], *const u = shared.matrix[1], *const p = shared.matrix[2],
           *const C = shared.matrix[3], *const H = shared.matrix[4], *const F = shared.matrix[5];
  small::Fetched<T, N> fetched = small::fetch(team, a.vectors);
  const auto s = small::read_spectrum<T, N>(team, a.map, a.values, nullptr, shared.vector);
  small::put(team, fetched, v);
  small::put_transposed(team, fetched, u);
  fetched = small::fetch(team, a.dL2_ddL_dmatrix);
  small::put(team, fetched, H);
  fetched = small::fetch(team, a.dL_dresult);
  small::put(team, fetched, C);
  team.template for_each_entry<1>(
      [&](int i, int j) { F[i * kStride + j] = s.kernel(a.exact, i, j); });
  team.sync();
  small::into_basis(team, v, u, H, p);
  if (a.dL2_dmatrix.data != nullptr) {
    small::into_basis(team, v, u, C, p);
    team.template for_each_entry<1>([&](int i, int j) {
      if (j < i) return;
      p[i * kStride + j] = p[j * kStride + i] = second_difference_sum(s, kStride, F, C, H, i, j);
    });
    team.sync();
    small::out_of_basis(team, v, u, p, C);
    small::store_symmetric(team, p, a.dL2_dmatrix);
    team.sync();
  }
  if (a.dL2_ddL_dresult.data != nullptr) {
    team.template for_each_entry<4>(
        [&](int i, int j) { H[i * kStride + j] *= F[i * kStride + j]; });
    team.sync();
    small::out_of_basis(team, v, u, H, p);
    small::store_symmetric(team, H, a.dL2_ddL_dresult);
  }
}

template <typename T>
struct LargeSecond {
  SecondArguments<T> a;
  T *x, *f;
  Matrices<T> F, C, H, D;

  __device__ DeviceSpectrum<T> spectrum(std::int64_t b) const {
    const std::int64_t n = F.n;
    return {a.map, int(n), a.values + b * n, n, x + b * n, f + b * n};
  }
};

template <typename T>
struct FillKernel : LargeSecond<T> {
  __device__ void operator()(std::int64_t b, std::int64_t i, std::int64_t j) const {
    this->F[b][i * this->F.n + j] = this->spectrum(b).kernel(this->a.exact, int(i), int(j));
  }
};
template <typename T>
struct FillSecond : LargeSecond<T> {
  __device__ void operator()(std::int64_t b, std::int64_t i, std::int64_t j) const {
    if (j < i) return;
    const std::int64_t n = this->F.n;
    this->D[b][i * n + j] = this->D[b][j * n + i] =
        second_difference_sum(this->spectrum(b), n, this->F[b], this->C[b], this->H[b], i, j);
  }
};
template <typename T>
struct ScaleByF : LargeSecond<T> {
  __device__ void operator()(std::int64_t b, std::int64_t i, std::int64_t j) const {
    this->H[b][i * this->F.n + j] *= this->F[b][i * this->F.n + j];
  }
};

template <typename T>
void large_second(const SecondArguments<T>& a, const Stream& stream) {
  using namespace large;
  const char* const op = kSpectralSecond;
  const std::int64_t batch = a.vectors.batch, n = a.vectors.n, count = batch * n * n;
  Scratch<T> x(op, stream, batch * n), f(op, stream, batch * n), memory(op, stream, 5 * count);
  const auto part = [&](int k) { return contiguous<T>(memory + k * count, batch, n); };
  const auto product = part(4);
  const LargeSecond<T> all{a, x, f, part(0), part(1), part(2), part(3)};
  const auto into_basis = [&](Matrices<const T> matrix, Matrices<T> to) {
    multiply(op, stream, SymmetricPart<T>{matrix}, Plain<T>{a.vectors}, product);
    multiply(op, stream, Transposed<T>{a.vectors}, Plain<T>{product}, to);
  };
  const auto out_of_basis = [&](Matrices<const T> matrix, Matrices<T> to) {
    multiply(op, stream, Plain<T>{a.vectors}, Plain<T>{matrix}, product);
    multiply<true>(op, stream, Plain<T>{product}, Transposed<T>{a.vectors}, to);
  };
  queue_spectrum<T>(op, stream, a.map, batch, n, a.values, nullptr, x, f);
  for_each_entry(op, stream, batch, n, FillKernel<T>{all});
  into_basis(a.dL2_ddL_dmatrix, all.H);
  if (a.dL2_dmatrix) {
    into_basis(a.dL_dresult, all.C);
    for_each_entry(op, stream, batch, n, FillSecond<T>{all});
    out_of_basis(all.D, a.dL2_dmatrix);
  }
  if (a.dL2_ddL_dresult) {
    for_each_entry(op, stream, batch, n, ScaleByF<T>{all});
    out_of_basis(all.H, a.dL2_ddL_dresult);
  }
}

}  // namespace keel::cuda
