#include "keel/spectral.h"

#include <cmath>
#include <vector>

#include "formulas/divided_difference.h"
#include "formulas/pair_weight.h"
#include "in_chunks.h"
#include "instantiate.h"
#include "layer_matrix_stages.h"
#include "padded_matrix.h"
#include "rank_policy.h"
#include "scratch.h"
#include "scratch_gap.h"
#include "spectral_check.h"

namespace keel::cpu {

namespace {

/// One matrix's eigenvalues as f sees them.
template <typename T>
struct Spectrum {
  SpectralMap<T> map;
  std::int64_t n, rank = 0;
  const T* l = nullptr;  ///< the eigenvalues as given
  T largest = 0;
  std::vector<T> x,
      f;  ///< x: max(l, floor) with noise around zero set to zero; f: f(x), 0 if dropped

  Spectrum(const SpectralFunction& function, std::int64_t size,
           T floor = -std::numeric_limits<T>::infinity())
      : map(function, floor), n(size), x(std::size_t(size)), f(std::size_t(size)) {}

  /// Returns false if f is not defined at a kept eigenvalue.
  bool read(const T* values, std::int64_t kept) {
    l = values;
    rank = std::min(kept, n);
    largest = largest_magnitude(n, values, map.floor);
    bool defined = true;
    for (std::size_t i = 0; i < f.size(); ++i) {
      x[i] = map.without_noise(l[i], n, largest);
      f[i] = std::int64_t(i) < rank ? map.value(x[i]) : T(0);
      defined = defined && !std::isnan(f[i]);
    }
    return defined;
  }

  /// W_ij of a rule for eigh.
  template <typename Weight>
  T weight(const Weight& weight, std::int64_t i, std::int64_t j, T b_ij, T b_ji) const {
    return weight_above(map.floor, weight, largest, l[i], l[j], b_ij, b_ji);
  }

  /// f[x_i, x_j] of kept eigenvalues.
  T slope(std::int64_t i, std::int64_t j) const {
    const auto a = std::size_t(i), b = std::size_t(j);
    return map.difference(x[a], x[b], f[a], f[b]);
  }
};

/// F of the exact rule.
template <typename T>
void fill_kernel(const Exact& rule, const Spectrum<T>& s, T* F) {
  const std::int64_t n = s.n, stride = padded<T>(n);
  std::fill(F, F + n * stride, T(0));
  const auto series = pair_weight<T>(Taylor{rule.terms}, n);
  for (std::int64_t i = 0; i < s.rank; ++i) {
    for (std::int64_t j = i; j < s.rank; ++j) F[i * stride + j] = F[j * stride + i] = s.slope(i, j);
    for (std::int64_t j = s.rank; j < n; ++j)
      F[i * stride + j] = F[j * stride + i] = 2 * s.weight(series, i, j, T(0), s.f[std::size_t(i)]);
  }
}

/// F of a rule for eigh. With g = 2 C V f, the pair's B_ij is 2 (V^T C V)_ij f_j. The factor 2 is
/// applied last because 2 f may overflow.
template <typename T, typename Rule>
void fill_kernel(const Rule& rule, const Spectrum<T>& s, T* F) {
  const std::int64_t n = s.n, stride = padded<T>(n);
  const auto weight = pair_weight<T>(rule, n);
  std::fill(F, F + n * stride, T(0));
  for (std::int64_t i = 0; i < s.rank; ++i) {
    F[i * stride + i] = slope_above(s.map.floor, weight.kTextbook, s.l[i]) * s.slope(i, i);
    for (std::int64_t j = i + 1; j < n; ++j)
      F[i * stride + j] = F[j * stride + i] =
          2 * s.weight(weight, i, j, s.f[std::size_t(j)], s.f[std::size_t(i)]);
  }
}

/// Scratch memory and the changes of basis from which all stages here are built. `v` holds V and
/// `u` its transpose.
template <typename T>
class Basis {
 public:
  Basis(std::int64_t n, std::int64_t extra)
      : n_(n), size_(with_gap<T>(n * padded<T>(n))), scratch_((3 + extra) * size_) {
    T* next = scratch_;
    for (std::int64_t k = 0; k < 3 + extra; ++k) clear_padding(n, take(next, n * padded<T>(n)));
  }
  T* v() const { return scratch_; }
  T* u() const { return scratch_ + size_; }
  T* extra(std::int64_t k) const { return scratch_ + (3 + k) * size_; }

  void read(const T* vectors, std::int64_t row_stride) {
    load(n_, vectors, row_stride, v());
    transpose(n_, v(), u());
  }

  /// to = V^T sym(matrix) V.
  void into(const T* matrix, std::int64_t row_stride, T* to) {
    load(n_, matrix, row_stride, to);
    symmetrise(n_, to);
    kernels<T>().multiply(n_, to, v(), product());
    kernels<T>().multiply(n_, u(), product(), to);
  }

  /// matrix = V a V^T for symmetric a, which is overwritten.
  void out_of(T* a, T* matrix, std::int64_t row_stride) {
    kernels<T>().multiply(n_, a, u(), product());
    kernels<T>().multiply(n_, v(), product(), a);
    symmetrise(n_, a);
    store(n_, a, matrix, row_stride);
  }

 private:
  T* product() const { return scratch_ + 2 * size_; }
  std::int64_t n_, size_;
  Scratch<T> scratch_;
};

template <typename T>
void scale_by(std::int64_t n, const T* F, T* a) {
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j) a[i * padded<T>(n) + j] *= F[i * padded<T>(n) + j];
}

/// D_ij = sum_k f[l_i, l_k, l_j] (C_ik H_kj + H_ik C_kj) in the eigenbasis. F holds the first
/// differences.
template <typename T>
void second_differences(const Spectrum<T>& s, const T* F, const T* C, const T* H, T* D) {
  const std::int64_t n = s.n, stride = padded<T>(n);
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = i; j < n; ++j) {
      T sum = 0;
      for (std::int64_t k = 0; k < n; ++k) {
        // Sort the three indices; i <= j always holds.
        const std::int64_t a = std::min(i, k), c = std::max(j, k), b = i + j + k - a - c;
        const T f_abc =
            s.map.second_difference(s.x[a], s.x[b], s.x[c], F[a * stride + b], F[b * stride + c]);
        sum +=
            f_abc * (C[i * stride + k] * H[j * stride + k] + H[i * stride + k] * C[j * stride + k]);
      }
      D[i * stride + j] = D[j * stride + i] = sum;
    }
}

template <typename T>
struct RankFinder {
  PlainRankPolicy policy;
  std::int64_t n;
  Matrices<const T> matrices, vectors;
  Scratch<T> scratch;

  /// l~_i = v_i^T M v_i - sum_{k<i} l~_k (v_k . v_i)^2: the Rayleigh quotient after deflating M by
  /// the earlier vectors, to second order in their loss of orthogonality.
  std::vector<T> rayleigh_quotients(std::int64_t b) {
    const std::int64_t stride = padded<T>(n);
    T* next = scratch;
    T *const v = take(next, n * stride), *const u = take(next, n * stride),
             *const m = take(next, n * stride), *const p = take(next, n * stride);
    for (T* each : {v, m}) clear_padding(n, each);
    load(n, vectors[b], vectors.row_stride, v);
    transpose(n, v, u);
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j <= i; ++j)
        m[i * stride + j] = m[j * stride + i] = matrices[b][i * matrices.row_stride + j];
    kernels<T>().multiply(n, m, v, p);
    std::vector<T> quotients(std::size_t(n), T(0));
    for (std::int64_t r = 0; r < n; ++r)
      for (std::int64_t i = 0; i < n; ++i)
        quotients[std::size_t(i)] += v[r * stride + i] * p[r * stride + i];
    kernels<T>().multiply(n, u, v, p);
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t k = 0; k < i; ++k) {
        const T overlap = p[k * stride + i];
        quotients[std::size_t(i)] -= quotients[std::size_t(k)] * overlap * overlap;
      }
    return quotients;
  }

  /// The rank of matrix b with eigenvalues l, before it is clamped to [1, n].
  std::int64_t operator()(std::int64_t b, const T* l) {
    std::vector<T> quotients;
    if (policy.by_rayleigh) quotients = rayleigh_quotients(b);
    double total = 0, sum = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      if (std::isnan(l[i])) return 1;
      total += policy.energy_of(l[i]);
    }
    const std::int64_t most = std::min(policy.count, n);
    const auto bounds = policy.bounds(n, largest_magnitude(n, l));
    const auto stops_before = [&](std::int64_t i) {
      return policy.stops_before(bounds, l[i],
                                 policy.by_rayleigh ? quotients[std::size_t(i)] : T(0));
    };
    for (std::int64_t i = 0; i < most; ++i) {
      if (stops_before(i)) return i;
      sum += policy.energy_of(l[i]);
      if (!policy.enough(sum, total)) continue;
      // The eigenvalues that are equal to this one have its fate.
      std::int64_t kept = policy.keep_reaching ? i + 1 : i;
      if (policy.literal) return kept;
      if (policy.keep_reaching)
        while (kept < most && l[kept] >= l[i] - bounds.same && !stops_before(kept)) ++kept;
      else
        while (kept > 0 && l[kept - 1] <= l[i] + bounds.same) --kept;
      return kept;
    }
    return most;
  }
};

}  // namespace

template <typename T>
void spectral_rank(const RankPolicy& policy, Matrices<const T> matrices, const T* values,
                   Matrices<const T> vectors, std::int64_t* rank, const Executor& executor) {
  check_spectral_rank("keel::spectral_rank", policy, matrices, values, vectors, rank);
  const PlainRankPolicy by = plain(policy);
  const std::int64_t n = vectors.n;
  in_chunks(vectors.batch, n, executor, [&](std::int64_t first, std::int64_t last) {
    RankFinder<T> find{by, n, matrices, vectors,
                       Scratch<T>(by.by_rayleigh ? 4 * with_gap<T>(n * padded<T>(n)) : 0)};
    for (std::int64_t b = first; b < last; ++b)
      rank[b] = std::min(n, std::max<std::int64_t>(1, find(b, values + b * n)));
  });
}

template <typename T>
void spectral(const SpectralFunction& function, const T* values, Matrices<const T> vectors,
              const std::int64_t* rank, Matrices<T> result, const Executor& executor) {
  check_spectral("keel::spectral", values, vectors, rank, result);
  const std::int64_t n = vectors.n, stride = padded<T>(n);
  in_chunks(vectors.batch, n, executor, [&](std::int64_t first, std::int64_t last) {
    Spectrum<T> spectrum(function, n);
    Basis<T> basis(n, 1);
    T* const S = basis.extra(0);
    for (std::int64_t b = first; b < last; ++b) {
      if (!spectrum.read(values + b * n, rank[b])) {
        store_nan(n, result[b], result.row_stride);
        continue;
      }
      basis.read(vectors[b], vectors.row_stride);
      for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t k = 0; k < n; ++k)
          basis.v()[i * stride + k] *= spectrum.f[std::size_t(k)];
      kernels<T>().multiply(n, basis.v(), basis.u(), S);
      symmetrise(n, S);
      store(n, S, result[b], result.row_stride);
    }
  });
}

template <typename T>
void spectral_backward(const SpectralFunction& function, const SpectralRule& rule, const T* values,
                       Matrices<const T> vectors, const std::int64_t* rank,
                       Matrices<const T> dL_dresult, Matrices<T> dL_dmatrix,
                       const Executor& executor) {
  spectral_backward_above<T>(-std::numeric_limits<T>::infinity(), function, rule, values, vectors,
                             rank, dL_dresult, dL_dmatrix, executor);
}

template <typename T>
void spectral_backward_above(T floor, const SpectralFunction& function, const SpectralRule& rule,
                             const T* values, Matrices<const T> vectors, const std::int64_t* rank,
                             Matrices<const T> dL_dresult, Matrices<T> dL_dmatrix,
                             const Executor& executor) {
  check_spectral_backward("keel::spectral_backward", rule, values, vectors, rank, dL_dresult,
                          dL_dmatrix);
  const std::int64_t n = vectors.n;
  in_chunks(vectors.batch, n, executor, [&](std::int64_t first, std::int64_t last) {
    Spectrum<T> spectrum(function, n, floor);
    Basis<T> basis(n, 2);
    T *const E = basis.extra(0), *const F = basis.extra(1);
    for (std::int64_t b = first; b < last; ++b) {
      if (!spectrum.read(values + b * n, rank[b])) {
        store_nan(n, dL_dmatrix[b], dL_dmatrix.row_stride);
        continue;
      }
      basis.read(vectors[b], vectors.row_stride);
      basis.into(dL_dresult[b], dL_dresult.row_stride, E);
      std::visit([&](const auto& chosen) { fill_kernel(chosen, spectrum, F); }, rule);
      scale_by(n, F, E);
      basis.out_of(E, dL_dmatrix[b], dL_dmatrix.row_stride);
    }
  });
}

template <typename T>
void spectral_second_backward(const SpectralFunction& function, const T* values,
                              Matrices<const T> vectors, Matrices<const T> dL_dresult,
                              Matrices<const T> dL2_ddL_dmatrix, Matrices<T> dL2_ddL_dresult,
                              Matrices<T> dL2_dmatrix, const Executor& executor) {
  check_spectral_second_backward("keel::spectral_second_backward", values, vectors, dL_dresult,
                                 dL2_ddL_dmatrix, dL2_ddL_dresult, dL2_dmatrix);
  const std::int64_t n = vectors.n;
  in_chunks(vectors.batch, n, executor, [&](std::int64_t first, std::int64_t last) {
    Spectrum<T> spectrum(function, n);
    Basis<T> basis(n, 4);
    T *const C = basis.extra(0), *const H = basis.extra(1), *const F = basis.extra(2),
             *const D = basis.extra(3);
    for (std::int64_t b = first; b < last; ++b) {
      if (!spectrum.read(values + b * n, n)) {
        if (dL2_ddL_dresult) store_nan(n, dL2_ddL_dresult[b], dL2_ddL_dresult.row_stride);
        if (dL2_dmatrix) store_nan(n, dL2_dmatrix[b], dL2_dmatrix.row_stride);
        continue;
      }
      basis.read(vectors[b], vectors.row_stride);
      basis.into(dL2_ddL_dmatrix[b], dL2_ddL_dmatrix.row_stride, H);
      fill_kernel(Exact{}, spectrum, F);
      if (dL2_dmatrix) {
        basis.into(dL_dresult[b], dL_dresult.row_stride, C);
        second_differences(spectrum, F, C, H, D);
        basis.out_of(D, dL2_dmatrix[b], dL2_dmatrix.row_stride);
      }
      if (dL2_ddL_dresult) {
        scale_by(n, F, H);
        basis.out_of(H, dL2_ddL_dresult[b], dL2_ddL_dresult.row_stride);
      }
    }
  });
}

#define KEEL_STAGES(T)                   \
  KEEL_STAGE(spectral_rank, T)           \
  KEEL_STAGE(spectral, T)                \
  KEEL_STAGE(spectral_backward, T)       \
  KEEL_STAGE(spectral_backward_above, T) \
  KEEL_STAGE(spectral_second_backward, T)
KEEL_FOR_REAL(KEEL_STAGES)
#undef KEEL_STAGES

}  // namespace keel::cpu
