#include "keel/spectral.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "dense.h"
#include "divided_difference.h"
#include "eigenvalue_noise.h"
#include "formulas/pair_weight.h"
#include "layer_matrix_stages.h"
#include "spectral_check.h"

namespace keel::reference {

namespace {

using Kind = SpectralFunction::Kind;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

bool is_whole(double x) { return std::floor(x) == x; }

bool in_domain(const SpectralFunction& function, double x) {
  switch (function.kind) {
    case Kind::one:
    case Kind::exp:
      return true;
    case Kind::sqrt:
      return x >= 0;
    case Kind::inv_sqrt:
    case Kind::log:
      return x > 0;
    case Kind::inv:
      return x != 0;
    case Kind::power:
      return x > 0 || (x == 0 && function.exponent >= 0) || (x < 0 && is_whole(function.exponent));
  }
  return false;
}

/// One matrix's eigenvalues as f sees them.
struct Spectrum {
  std::int64_t n, rank;
  std::vector<double> l;  // as they came
  std::vector<Real> x;  // max(l, floor), those under a root that are noise around zero set to zero
  std::vector<double> f;  // 0 where dropped
  double floor, largest;
  bool defined = true;

  Spectrum(const SpectralFunction& function, std::int64_t size, const double* values,
           std::int64_t kept, double least = -std::numeric_limits<double>::infinity())
      : n(size),
        rank(kept),
        l(values, values + size),
        x(values, values + size),
        f(l.size()),
        floor(least),
        largest(largest_magnitude(size, values, least)) {
    for (Real& each : x) each = std::max(each, Real(floor));
    const bool root =
        function.kind == Kind::sqrt ||
        (function.kind == Kind::power && function.exponent > 0 && !is_whole(function.exponent));
    for (std::size_t i = 0; i < l.size(); ++i) {
      if (root && double(x[i]) <= eigenvalue_noise<double>(n) * largest &&
          double(x[i]) >= -covariance_noise<double>(n) * largest)
        x[i] = 0;
      if (std::int64_t(i) >= rank) continue;
      if (std::isnan(l[i]) || !in_domain(function, double(x[i]))) defined = false;
      if (defined) f[i] = double(divided_difference(function, {x[i]}));
    }
  }
};

/// F_ij for i <= j, so that dL_dM = V (F o V^T C V) V^T.
struct Kernel {
  const SpectralFunction& function;
  const Spectrum& s;
  std::size_t i, j;

  double operator()(const Exact& rule) const {
    if (std::int64_t(i) >= s.rank) return 0;
    if (std::int64_t(j) < s.rank) return double(divided_difference(function, {s.x[i], s.x[j]}));
    // (f_i - 0) / (l_i - l_j), with the quotient as a series in follower / leader.
    return 2 * weight(Taylor{rule.terms}, 0, s.f[i]);
  }

  /// S = V f V^T is eigh followed by g = 2 C V f, so B_ij = 2 (V^T C V)_ij f_j.
  double operator()(const auto& rule) const {
    if (std::int64_t(i) >= s.rank) return 0;
    if (i != j) return 2 * weight(rule, s.f[j], s.f[i]);
    constexpr bool textbook = PairWeight<double, std::decay_t<decltype(rule)>>::kTextbook;
    return slope_above(s.floor, textbook, s.l[i]) *
           double(divided_difference(function, {s.x[i], s.x[i]}));
  }

 private:
  double weight(const auto& rule, double b_ij, double b_ji) const {
    return weight_above(s.floor, pair_weight<double>(rule, s.n), s.largest, s.l[i], s.l[j], b_ij,
                        b_ji);
  }
};

Dense kernel_matrix(const SpectralFunction& function, const SpectralRule& rule, const Spectrum& s) {
  Dense F(s.n);
  for (std::size_t i = 0; i < s.l.size(); ++i)
    for (std::size_t j = i; j < s.l.size(); ++j)
      F(std::int64_t(i), std::int64_t(j)) = F(std::int64_t(j), std::int64_t(i)) =
          std::visit(Kernel{function, s, i, j}, rule);
  return F;
}

Dense elementwise(const Dense& a, const Dense& b) {
  Dense c(a.n);
  for (std::size_t k = 0; k < c.entries.size(); ++k) c.entries[k] = a.entries[k] * b.entries[k];
  return c;
}

Dense undefined(std::int64_t n) {
  Dense all(n);
  std::fill(all.entries.begin(), all.entries.end(), kNaN);
  return all;
}

std::int64_t rank_of(const FullRank&, std::int64_t n, const double*, const Dense*, const Dense*) {
  return n;
}

std::int64_t rank_of(const LeadingCount& policy, std::int64_t n, const double*, const Dense*,
                     const Dense*) {
  return std::min(policy.count, n);
}

double energy(const double* values, std::int64_t count) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += std::max(values[i], 0.0);
  return sum;
}

std::int64_t rank_of(const LeadingEnergy& policy, std::int64_t n, const double* values,
                     const Dense*, const Dense*) {
  const double total = energy(values, n);
  for (std::int64_t r = 1; r <= n; ++r)
    if (energy(values, r) >= policy.fraction * total) return r;
  return n;
}

std::int64_t rank_of(const Algorithm1& policy, std::int64_t n, const double* values,
                     const Dense* matrix, const Dense* vectors) {
  const double total = energy(values, n);
  const double largest = policy.literal ? 0 : largest_magnitude(n, values);
  const double margin = covariance_noise<double>(n) * largest;
  const double same = repeat_noise<double>(n) * largest;
  Dense deflated = *matrix;
  std::int64_t reaching = n;  // the eigenvalue that reaches the energy
  for (std::int64_t i = 0; i < n; ++i) {
    if (reaching < n && values[i] < values[reaching] - same) return i;
    if (policy.eps && values[i] <= *policy.eps + margin) return i;
    if (policy.rayleigh_tolerance) {
      std::vector<double> product(std::size_t(n), 0.0);
      double rayleigh = 0;
      for (std::int64_t r = 0; r < n; ++r) {
        for (std::int64_t c = 0; c < n; ++c)
          product[std::size_t(r)] += deflated(r, c) * (*vectors)(c, i);
        rayleigh += (*vectors)(r, i) * product[std::size_t(r)];
      }
      const double off = std::abs(rayleigh - values[i]);
      if (!(off < *policy.rayleigh_tolerance * values[i])) return i;
      for (std::int64_t r = 0; r < n; ++r)
        for (std::int64_t c = 0; c < n; ++c)
          deflated(r, c) -= product[std::size_t(r)] * (*vectors)(c, i);
    }
    if (!policy.energy || energy(values, i + 1) < *policy.energy * total) continue;
    if (policy.literal) return policy.keep_reaching ? i + 1 : i;
    if (policy.keep_reaching)
      reaching = std::min(reaching, i);
    else
      return std::find_if(values, values + n, [&](double x) { return x <= values[i] + same; }) -
             values;
  }
  return n;
}

}  // namespace

void spectral_rank(const RankPolicy& policy, Matrices<const double> matrices, const double* values,
                   Matrices<const double> vectors, std::int64_t* rank) {
  check_spectral_rank("keel::reference::spectral_rank", policy, matrices, values, vectors, rank);
  const std::int64_t n = vectors.n;
  const bool needs_matrix = std::holds_alternative<Algorithm1>(policy);
  for (std::int64_t b = 0; b < vectors.batch; ++b) {
    const double* l = values + b * n;
    if (std::any_of(l, l + n, [](double x) { return std::isnan(x); })) {
      rank[b] = std::min<std::int64_t>(1, n);
      continue;
    }
    const Dense M = needs_matrix ? load_lower(matrices, b) : Dense(0);
    const Dense V = needs_matrix ? load(vectors, b) : Dense(0);
    const std::int64_t kept =
        std::visit([&](const auto& p) { return rank_of(p, n, l, &M, &V); }, policy);
    rank[b] = std::clamp<std::int64_t>(kept, std::min<std::int64_t>(1, n), n);
  }
}

void spectral(const SpectralFunction& function, const double* values,
              Matrices<const double> vectors, const std::int64_t* rank, Matrices<double> result) {
  check_spectral("keel::reference::spectral", values, vectors, rank, result);
  const std::int64_t n = vectors.n;
  for (std::int64_t b = 0; b < vectors.batch; ++b) {
    const Spectrum s(function, n, values + b * n, rank[b]);
    const Dense V = load(vectors, b);
    Dense F(n);
    for (std::int64_t i = 0; i < n; ++i) F(i, i) = s.f[std::size_t(i)];
    store_symmetric(s.defined ? V * F * transpose(V) : undefined(n), result, b);
  }
}

void spectral_backward(const SpectralFunction& function, const SpectralRule& rule,
                       const double* values, Matrices<const double> vectors,
                       const std::int64_t* rank, Matrices<const double> dL_dresult,
                       Matrices<double> dL_dmatrix) {
  spectral_backward_above(-std::numeric_limits<double>::infinity(), function, rule, values, vectors,
                          rank, dL_dresult, dL_dmatrix);
}

void spectral_backward_above(double floor, const SpectralFunction& function,
                             const SpectralRule& rule, const double* values,
                             Matrices<const double> vectors, const std::int64_t* rank,
                             Matrices<const double> dL_dresult, Matrices<double> dL_dmatrix) {
  check_spectral_backward("keel::reference::spectral_backward", rule, values, vectors, rank,
                          dL_dresult, dL_dmatrix);
  const std::int64_t n = vectors.n;
  for (std::int64_t b = 0; b < vectors.batch; ++b) {
    const Spectrum s(function, n, values + b * n, rank[b], floor);
    const Dense V = load(vectors, b);
    if (!s.defined) {
      store_symmetric(undefined(n), dL_dmatrix, b);
      continue;
    }
    const Dense C = symmetric_part(load(dL_dresult, b));
    const Dense E = elementwise(kernel_matrix(function, rule, s), transpose(V) * C * V);
    store_symmetric(V * E * transpose(V), dL_dmatrix, b);
  }
}

void spectral_second_backward(const SpectralFunction& function, const double* values,
                              Matrices<const double> vectors, Matrices<const double> dL_dresult,
                              Matrices<const double> dL2_ddL_dmatrix,
                              Matrices<double> dL2_ddL_dresult, Matrices<double> dL2_dmatrix) {
  check_spectral_second_backward("keel::reference::spectral_second_backward", values, vectors,
                                 dL_dresult, dL2_ddL_dmatrix, dL2_ddL_dresult, dL2_dmatrix);
  const std::int64_t n = vectors.n;
  for (std::int64_t b = 0; b < vectors.batch; ++b) {
    const Spectrum s(function, n, values + b * n, n);
    const Dense V = load(vectors, b), U = transpose(V);
    if (!s.defined) {
      if (dL2_ddL_dresult) store_symmetric(undefined(n), dL2_ddL_dresult, b);
      if (dL2_dmatrix) store_symmetric(undefined(n), dL2_dmatrix, b);
      continue;
    }
    const Dense C = U * symmetric_part(load(dL_dresult, b)) * V;
    const Dense H = U * symmetric_part(load(dL2_ddL_dmatrix, b)) * V;
    if (dL2_ddL_dresult)
      store_symmetric(V * elementwise(kernel_matrix(function, Exact{}, s), H) * U, dL2_ddL_dresult,
                      b);
    if (!dL2_dmatrix) continue;
    Dense D(n);
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < n; ++j)
        for (std::int64_t k = 0; k < n; ++k) {
          std::vector<Real> points{s.x[std::size_t(i)], s.x[std::size_t(j)], s.x[std::size_t(k)]};
          std::sort(points.begin(), points.end(), std::greater<>());
          D(i, j) += double(divided_difference(function, points)) *
                     (C(i, k) * H(k, j) + H(i, k) * C(k, j));
        }
    store_symmetric(V * D * U, dL2_dmatrix, b);
  }
}

}  // namespace keel::reference
