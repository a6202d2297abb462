#pragma once

// eigh_backward with owned memory, and a bound on its kernel.

#include "keel/gradient_rule.h"
#include "plain_pair_weight.h"
#include "solve.h"
#include "tolerance.h"

namespace keel::testing {

template <typename T>
Batch<T> backward(const GradientRule& rule, const Solved<T>& s, const std::vector<T>* dL_dvalues,
                  const Batch<T>* dL_dvectors, const Executor& executor = serial()) {
  Batch<T> out(s.vectors.batch, s.vectors.n, T(-77));
  cpu::eigh_backward<T>(
      rule, s.values.data(), s.vectors.view(), dL_dvalues ? dL_dvalues->data() : nullptr,
      dL_dvectors ? dL_dvectors->view() : Matrices<const T>{}, out.view(), executor);
  return out;
}

inline Batch<double> backward_by_reference(const GradientRule& rule, const Solved<double>& s,
                                           const std::vector<double>* dL_dvalues,
                                           const Batch<double>* dL_dvectors) {
  Batch<double> out(s.vectors.batch, s.vectors.n);
  reference::eigh_backward(
      rule, s.values.data(), s.vectors.view(), dL_dvalues ? dL_dvalues->data() : nullptr,
      dL_dvectors ? dL_dvectors->view() : Matrices<const double>{}, out.view());
  return out;
}

template <typename To, typename From>
Solved<To> as(const Solved<From>& s) {
  return {as<To>(s.values), as<To>(s.vectors), s.status};
}

/// The largest |W_ij| for a unit B, by which rounding in B is amplified.
inline double kernel_bound(const GradientRule& rule, const std::vector<double>& values) {
  const auto n = std::int64_t(values.size());
  const double largest = largest_magnitude(n, values.data());
  double bound = 0;
  for (std::size_t i = 0; i < values.size(); ++i)
    for (std::size_t j = i + 1; j < values.size(); ++j)
      bound =
          std::max(bound, double(std::abs(std::visit(
                              PlainPairWeight{n, largest, values[i], values[j], -1, 1}, rule))));
  return bound;
}

template <typename T>
double largest_entry(const Batch<T>& m) {
  double largest = 0;
  for (const T x : m.data) largest = larger(largest, std::abs(double(x)));
  return largest;
}

template <typename T>
double largest_difference(const Batch<T>& a, const Batch<double>& b) {
  double largest = 0;
  for (std::size_t k = 0; k < a.data.size(); ++k) {
    largest = larger(largest, std::abs(double(a.data[k]) - b.data[k]));
  }
  return largest;
}

template <typename T>
bool all_finite(const Batch<T>& m) {
  for (const T x : m.data)
    if (!std::isfinite(x)) return false;
  return true;
}

template <typename T>
bool exactly_symmetric(const Batch<T>& m) {
  for (std::int64_t b = 0; b < m.batch; ++b)
    for (std::int64_t i = 0; i < m.n; ++i)
      for (std::int64_t j = 0; j < i; ++j)
        if (m(b, i, j) != m(b, j, i)) return false;
  return true;
}

}  // namespace keel::testing
