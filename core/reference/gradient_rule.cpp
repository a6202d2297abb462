#include "keel/gradient_rule.h"

#include <limits>
#include <vector>

#include "dense.h"
#include "formulas/pair_weight.h"
#include "layer_matrix_stages.h"
#include "spectral_check.h"

namespace keel::reference {

void eigh_backward(const GradientRule& rule, const double* values, Matrices<const double> vectors,
                   const double* dL_dvalues, Matrices<const double> dL_dvectors,
                   Matrices<double> dL_dmatrix) {
  const std::vector<std::int64_t> all(std::size_t(vectors.batch), vectors.n);
  eigh_backward_above(-std::numeric_limits<double>::infinity(), all.data(), rule, values, vectors,
                      dL_dvalues, dL_dvectors, dL_dmatrix);
}

void eigh_backward_above(double floor, const std::int64_t* rank, const GradientRule& rule,
                         const double* values, Matrices<const double> vectors,
                         const double* dL_dvalues, Matrices<const double> dL_dvectors,
                         Matrices<double> dL_dmatrix) {
  check_eigh_backward("keel::reference::eigh_backward", rule, values, vectors, dL_dvectors,
                      dL_dmatrix);
  const std::int64_t n = vectors.n;
  for (std::int64_t b = 0; b < vectors.batch; ++b) {
    const double* l = values + b * n;
    const Dense V = load(vectors, b);
    Dense W(n);
    if (dL_dvectors) {
      const Dense B = transpose(V) * load(dL_dvectors, b);
      const double largest = largest_magnitude(n, l, floor);
      for (std::int64_t i = 0; i < std::min(rank[b], n); ++i)
        for (std::int64_t j = i + 1; j < n; ++j)
          W(i, j) = W(j, i) = std::visit(
              [&](const auto& chosen) {
                return weight_above(floor, pair_weight<double>(chosen, n), largest, l[i], l[j],
                                    B(i, j), B(j, i));
              },
              rule);
    }
    if (dL_dvalues)
      for (std::int64_t i = 0; i < n; ++i) W(i, i) = dL_dvalues[b * n + i];
    store_symmetric(V * W * transpose(V), dL_dmatrix, b);
  }
}

}  // namespace keel::reference
