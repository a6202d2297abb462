#include "keel/gradient_rule.h"

#include "cuda/gradient_rule/device_rule.cuh"
#include "cuda/matrix/large.cuh"
#include "cuda/matrix/tiny.cuh"
#include "instantiate.h"
#include "layer_matrix_stages.h"
#include "spectral_check.h"

namespace keel::cuda {

namespace {

constexpr const char* kOperation = "keel::eigh_backward";

template <typename T>
struct Arguments {
  T floor;
  const std::int64_t* rank;  ///< null: n
  DeviceRule<T> rule;
  const T* values;
  Matrices<const T> vectors;
  const T* dL_dvalues;
  Matrices<const T> dL_dvectors;
  Matrices<T> dL_dmatrix;

  __device__ T dL_dvalue(std::int64_t b, std::int64_t i) const {
    return dL_dvalues != nullptr ? dL_dvalues[b * vectors.n + i] : T(0);
  }
  __device__ std::int64_t kept(std::int64_t b) const {
    return rank != nullptr ? rank[b] : vectors.n;
  }
};

template <typename T, int N>
using Memory = small::Storage<T, N, 4, 2>;

template <typename T, int N>
__global__ void __launch_bounds__(small::SmallTeam<T, N>::kBlockThreads,
                                  small::SmallTeam<T, N>::kBlocks) small_kernel(Arguments<T> a) {
  constexpr int kStride = small::SmallTeam<T, N>::kStride;
  const small::SmallTeam<T, N> team(a.vectors.batch, a.vectors.n);
  auto& shared = small::storage<Memory<T, N>>(team);
  T *const v = shared.matrix[0], *const u = shared.matrix[1], *const p = shared.matrix[2],
           *const q = shared.matrix[3], *const l = shared.vector[0], *const h = shared.vector[1];
  small::Fetched<T, N> basis = small::fetch(team, a.vectors), gradient;
  if (a.dL_dvectors.data != nullptr) gradient = small::fetch(team, a.dL_dvectors);
  if (team.thread() < team.n) {
    l[team.thread()] = a.values[team.index * team.n + team.thread()];
    h[team.thread()] = a.dL_dvalue(team.index, team.thread());
  }
  small::put(team, basis, v);
  small::put_transposed(team, basis, u);
  if (a.dL_dvectors.data != nullptr) small::put(team, gradient, p);
  team.sync();
  const auto diagonal = [&](int i) { return h[i]; };
  if (a.dL_dvectors.data != nullptr) {
    small::multiply(team, team.n, u, p, q);
    small::weigh_pairs(team, a.rule, a.floor, a.kept(team.index), l, q, diagonal, p);
  } else {
    team.template for_each_entry<4>(
        [&](int i, int j) { p[i * kStride + j] = i == j ? diagonal(i) : T(0); });
    team.sync();
  }
  small::out_of_basis(team, v, u, p, q);
  small::store_symmetric(team, p, a.dL_dmatrix);
}

template <typename T, int N>
__global__ void __launch_bounds__(tiny::kThreads) tiny_kernel(Arguments<T> a) {
  __shared__ tiny::Tile<T, N, N> basis, gradient;
  const tiny::Share share(a.vectors.batch);
  basis.fetch(share, tiny::rectangles(a.vectors));
  if (a.dL_dvectors.data != nullptr) gradient.fetch(share, tiny::rectangles(a.dL_dvectors));
  __syncthreads();
  if (share.has_one()) {
    T l[N];
    tiny::Registers<T, N> v, b, w;
    v.take(basis);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      l[i] = a.values[share.index() * N + i];
      w.at[i][i] = a.dL_dvalue(share.index(), i);
    }
    if (a.dL_dvectors.data != nullptr) {
      b.take(gradient);
      b = tiny::transposed_times(v, b);
      const T largest = largest_magnitude(N, l, a.floor);
      const std::int64_t kept = a.kept(share.index());
#pragma unroll
      for (int i = 0; i < N; ++i)
#pragma unroll
        for (int j = i + 1; j < N; ++j)
          w.at[i][j] = w.at[j][i] =
              i < kept ? a.rule.weight(a.floor, largest, l[i], l[j], b.at[i][j], b.at[j][i]) : T(0);
    } else {
#pragma unroll
      for (int i = 0; i < N; ++i)
#pragma unroll
        for (int j = i + 1; j < N; ++j) w.at[i][j] = w.at[j][i] = T(0);
    }
    tiny::out_of_basis(v, w, basis);
  }
  __syncthreads();
  basis.put(share, tiny::rectangles(a.dL_dmatrix));
}

template <typename T>
struct Weigh {
  Arguments<T> a;
  Matrices<const T> B;
  Matrices<T> W;
  __device__ void operator()(std::int64_t b, std::int64_t i, std::int64_t j) const {
    const std::int64_t n = W.n, first = i < j ? i : j, second = i < j ? j : i;
    const T* const l = a.values + b * n;
    T w = 0;
    if (i == j)
      w = a.dL_dvalue(b, i);
    else if (B.data != nullptr && first < a.kept(b))
      w = a.rule.weight(a.floor, largest_magnitude(int(n), l, a.floor), l[first], l[second],
                        B[b][first * n + second], B[b][second * n + first]);
    W[b][i * n + j] = w;
  }
};

template <typename T>
void large_backward(const Arguments<T>& a, const Stream& stream) {
  using namespace large;
  const std::int64_t batch = a.vectors.batch, n = a.vectors.n, count = batch * n * n;
  Scratch<T> first(kOperation, stream, count), second(kOperation, stream, count);
  const auto W = contiguous<T>(first, batch, n), product = contiguous<T>(second, batch, n);
  Matrices<const T> B;
  if (a.dL_dvectors) {
    multiply(kOperation, stream, Transposed<T>{a.vectors}, Plain<T>{a.dL_dvectors}, product);
    B = product;
  }
  for_each_entry(kOperation, stream, batch, n, Weigh<T>{a, B, W});
  multiply(kOperation, stream, Plain<T>{a.vectors}, Plain<T>{W}, product);
  multiply<true>(kOperation, stream, Plain<T>{product}, Transposed<T>{a.vectors}, a.dL_dmatrix);
}

}  // namespace

template <typename T>
void eigh_backward(const GradientRule& rule, const T* values, Matrices<const T> vectors,
                   const T* dL_dvalues, Matrices<const T> dL_dvectors, Matrices<T> dL_dmatrix,
                   const Stream& stream) {
  eigh_backward_above<T>(kNone<T>, nullptr, rule, values, vectors, dL_dvalues, dL_dvectors,
                         dL_dmatrix, stream);
}

template <typename T>
void eigh_backward_above(T floor, const std::int64_t* rank, const GradientRule& rule,
                         const T* values, Matrices<const T> vectors, const T* dL_dvalues,
                         Matrices<const T> dL_dvectors, Matrices<T> dL_dmatrix,
                         const Stream& stream) {
  check_eigh_backward(kOperation, rule, values, vectors, dL_dvectors, dL_dmatrix);
  if (vectors.n == 0 || vectors.batch == 0) return;
  const Arguments<T> arguments{floor,       rank,      device_rule<T>(rule, vectors.n),
                               values,      vectors,   dL_dvalues,
                               dL_dvectors, dL_dmatrix};
  if (fits_one_thread(vectors.n, vectors.batch))
    return by_tiny_size(vectors.n, [&](auto size) {
      tiny::launch(kOperation, tiny_kernel<T, decltype(size)::value>, vectors.batch, stream,
                   arguments);
    });
  if (!small::fits<T, Memory>(vectors.n)) return large_backward(arguments, stream);
  by_small_size(vectors.n, [&](auto size) {
    constexpr int N = decltype(size)::value;
    small::launch<T, N, Memory<T, N>>(kOperation, small_kernel<T, N>, vectors.batch, stream,
                                      arguments);
  });
}

#define KEEL_STAGES(T)         \
  KEEL_STAGE(eigh_backward, T) \
  KEEL_STAGE(eigh_backward_above, T)
KEEL_FOR_REAL(KEEL_STAGES)
#undef KEEL_STAGES

}  // namespace keel::cuda
