#include "gradient_rule_formula.h"

#include <cmath>
#include <limits>

namespace keel::ops {

Tensor divided(const Tensor& numerator, const Tensor& denominator) {
  if (!numerator.is_complex()) return numerator / denominator;
  return at::complex(at::real(numerator) / denominator, at::imag(numerator) / denominator);
}

// Masking the quotient alone is not enough: a zero denominator makes the gradient NaN even behind the mask.
Tensor divide_where(const Tensor& chosen, const Tensor& numerator, const Tensor& denominator) {
  const Tensor safe = at::where(chosen, denominator, at::ones_like(denominator));
  return at::where(chosen, divided(numerator, safe), at::zeros_like(numerator));
}

Tensor geometric_sum(const Tensor& q, int count) {
  Tensor sum = at::zeros_like(q), power = at::ones_like(q);  // S_t(q) and q^t
  for (int bit = 30; bit >= 0; --bit) {
    if (count >> bit == 0) continue;
    sum = sum * (1 + power);
    power = power * power;
    if (count >> bit & 1) {
      sum = 1 + q * sum;
      power = power * q;
    }
  }
  return sum;
}

namespace {

/// The inputs of every rule's W. Entry (i, j) of each matrix describes the pair i, j.
struct Pairs {
  Tensor row, column;  ///< l_i and l_j, broadcastable
  Tensor distinct;     ///< i != j
  Tensor upper;        ///< i < j
  Tensor largest;      ///< largest |l|, 1 for a zero matrix
  /// B = V^H dL_dvectors and its adjoint. Every W_ij is linear, with real factors, in B_ij and conj(B_ji).
  Tensor b, b_transposed;

  // Of large eigenvalues of both signs the whole gap may be out of range.
  Tensor half_gap() const { return row / 2 - column / 2; }
  /// (B_ji - B_ij) / 2, times `factor`.
  Tensor apart(double factor = 1) const { return (b_transposed - b) * (factor / 2); }
};

Pairs pairs_of(const Tensor& values, const Tensor& b, const Tensor& b_transposed) {
  Pairs pairs;
  pairs.row = values.unsqueeze(-1);
  pairs.column = values.unsqueeze(-2);
  pairs.upper = at::ones_like(b, b.options().dtype(at::kBool)).triu(1);
  pairs.distinct = pairs.upper.logical_or(pairs.upper.mT());
  const Tensor largest = values.abs().amax(-1, /*keepdim=*/true).unsqueeze(-1);
  pairs.largest = at::where(largest == 0, at::ones_like(largest), largest);
  pairs.b = b;
  pairs.b_transposed = b_transposed;
  return pairs;
}

double smallest_normal(const Tensor& of) {
  return of.scalar_type() == at::kFloat ? double(std::numeric_limits<float>::min())
                                        : std::numeric_limits<double>::min();
}

/// Series rules expand about the eigenvalue of larger magnitude, the leader. A pair is written only in its leader's row;
/// taking the symmetric part of W fills the other entry.
Tensor series(const Pairs& pairs, int leader_terms, int follower_terms) {
  const Tensor size_row = pairs.row.abs(), size_column = pairs.column.abs();
  const Tensor first =
      (pairs.row > pairs.column).logical_or((pairs.row == pairs.column).logical_and(pairs.upper));
  const Tensor leads =
      (size_row > size_column).logical_or((size_row == size_column).logical_and(first));
  const Tensor chosen = leads.logical_and(pairs.row != 0);
  const Tensor leader = pairs.row.expand_as(pairs.b);
  const Tensor q = divide_where(chosen, pairs.column.expand_as(pairs.b), leader);
  const Tensor numerator = geometric_sum(q, leader_terms) * pairs.b_transposed -
                           geometric_sum(q, follower_terms) * pairs.b;
  return divide_where(chosen, numerator, leader);
}

Tensor weights(const Analytic&, const Pairs& pairs) {
  return divide_where(pairs.distinct, pairs.apart(0.5), pairs.half_gap());
}

Tensor weights(const PowerIteration& rule, const Pairs& pairs) {
  return series(pairs, rule.terms, rule.terms - 1);
}

Tensor weights(const Taylor& rule, const Pairs& pairs) {
  return series(pairs, rule.terms, rule.terms);
}

Tensor weights(const Lorentzian& rule, const Pairs& pairs) {
  const Tensor gap = pairs.half_gap() / (pairs.largest / 2);
  const Tensor numerator = divided(pairs.apart(), pairs.largest);
  const double width = rule.width;
  if (width * width >= smallest_normal(gap))
    return divide_where(pairs.distinct, numerator * gap, gap * gap + width * width);
  // width^2 underflows, and 1 / width^2, the rule's slope at equal eigenvalues, overflows. Like the rule itself, the slope
  // counts as zero there.
  const Tensor apart = pairs.distinct.logical_and(gap != 0);
  const Tensor safe = at::where(apart, gap, at::ones_like(gap));
  return divide_where(apart, numerator, safe + width * (width / safe));
}

double tolerance_of(const Masked& rule, const Tensor& values) {
  const double n = double(values.sym_size(-1).guard_int(__FILE__, __LINE__));
  return rule.tolerance.value_or(10 * std::sqrt(n) * epsilon_of(values));
}

/// The largest magnitude of (..., k) values, as (..., 1).
Tensor largest_of(const Tensor& values) { return values.abs().amax(-1, /*keepdim=*/true); }

Tensor quotient_by(const Analytic&, const Tensor& numerator, const Tensor& x, const Tensor&) {
  return divide_where((x != 0).logical_or(numerator != 0), numerator, x);
}

// The series of a pair is bounded by terms / leader, and 1 / (sum of the two) is at most 1 / leader, so it needs no bound.
Tensor quotient_by(const PowerIteration&, const Tensor& numerator, const Tensor& x, const Tensor&) {
  return divide_where(x != 0, numerator, x);
}
Tensor quotient_by(const Taylor&, const Tensor& numerator, const Tensor& x, const Tensor&) {
  return divide_where(x != 0, numerator, x);
}

Tensor quotient_by(const Lorentzian& rule, const Tensor& numerator, const Tensor& x,
                   const Tensor& values) {
  const Tensor largest = largest_of(values).unsqueeze(-1);
  const Tensor unit = at::where(largest == 0, at::ones_like(largest), largest), y = x / unit;
  if (rule.width * rule.width >= smallest_normal(x))
    return divided(numerator * (y / (y * y + rule.width * rule.width)), unit);
  const Tensor chosen = y != 0, safe = at::where(chosen, y, at::ones_like(y));
  return divided(divide_where(chosen, numerator, safe + rule.width * (rule.width / safe)), unit);
}

Tensor quotient_by(const Masked& rule, const Tensor& numerator, const Tensor& x,
                   const Tensor& values) {
  return divide_where(x > noise_of(values, rule).unsqueeze(-1), numerator, x);
}

Tensor weights(const Masked& rule, const Pairs& pairs) {
  const double tolerance = tolerance_of(rule, pairs.b);
  const Tensor gap = pairs.half_gap();
  const Tensor kept = pairs.distinct.logical_and(gap.abs() > tolerance * (pairs.largest / 2));
  return divide_where(kept, pairs.apart(0.5), gap);
}

Tensor weights_of(const GradientRule& rule, const Pairs& pairs) {
  return std::visit([&](const auto& r) { return weights(r, pairs); }, rule);
}

}  // namespace

Tensor quotient(const GradientRule& rule, const Tensor& numerator, const Tensor& x,
                const Tensor& values) {
  return std::visit([&](const auto& r) { return quotient_by(r, numerator, x, values); }, rule);
}

Tensor noise_of(const Tensor& values, const Masked& rule) {
  return tolerance_of(rule, values) * largest_of(values).detach();
}

double epsilon_of(const Tensor& tensor) {
  return type_of_values(tensor) == at::kFloat ? double(std::numeric_limits<float>::epsilon())
                                              : std::numeric_limits<double>::epsilon();
}

Tensor masked_pairs(const Masked& rule, const Tensor& values) {
  const Tensor gap = (values.unsqueeze(-1) - values.unsqueeze(-2)).abs();
  const Tensor largest = values.abs().amax(-1, /*keepdim=*/true).unsqueeze(-1);
  const Tensor upper = (gap <= tolerance_of(rule, values) * largest).triu(1);
  return upper.logical_or(upper.mT());
}

Tensor gradient_rule_formula(const GradientRule& rule, const Tensor& values, const Tensor& vectors,
                             const Tensor& dL_dvalues, const Tensor& dL_dvectors) {
  if (vectors.sym_numel() == 0) return at::zeros_like(vectors);
  Tensor middle;
  if (dL_dvectors.defined()) {
    const Tensor b = vectors.mH().matmul(dL_dvectors);
    middle = weights_of(rule, pairs_of(values, b, b.mH()));
  }
  if (dL_dvalues.defined())
    middle = plus(middle, at::diag_embed(dL_dvalues.to(vectors.scalar_type())));
  if (!middle.defined()) return at::zeros_like(vectors);
  const Tensor dL_dmatrix = vectors.matmul(middle).matmul(vectors.mH());
  return (dL_dmatrix + dL_dmatrix.mH()) / 2;
}

std::pair<Tensor, Tensor> gradient_rule_tangents(const GradientRule& rule, const Tensor& values,
                                                 const Tensor& vectors, const Tensor& along) {
  if (vectors.sym_numel() == 0) return {at::zeros_like(values), at::zeros_like(vectors)};
  const Tensor e = vectors.mH().matmul((along + along.mH()) / 2).matmul(vectors);
  // W_ij is linear in B_ij and conj(B_ji), so the adjoint is the sum of both contributions.
  const Tensor none = at::zeros_like(e);
  const Tensor turned = weights_of(rule, pairs_of(values, e, none)) +
                        weights_of(rule, pairs_of(values, none, e)).mH();
  return {at::real(e.diagonal(0, -2, -1)).clone(), vectors.matmul(turned)};
}

}  // namespace keel::ops
