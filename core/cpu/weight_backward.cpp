#include "keel/weight_backward.h"

#include <algorithm>
#include <utility>

#include "instantiate.h"
#include "weight_backward_check.h"

namespace keel::cpu {

template <typename T>
void weight_backward(const T* weight, Matrices<const T> layer_matrix, const T* sum,
                     Matrices<const T> cross, T* dL_dweight, T* dL_dmean,
                     Matrices<T> dL_dlayer_matrix, Matrices<T> matrix, const Executor& executor) {
  check_weight_backward("keel::weight_backward", layer_matrix, sum, cross, dL_dmean,
                        dL_dlayer_matrix, matrix);
  const std::int64_t d = layer_matrix.n;
  executor(layer_matrix.batch, [&](std::int64_t g) {
    T* const column_sums = dL_dmean != nullptr ? dL_dmean + g * d : nullptr;
    if (column_sums != nullptr) std::fill_n(column_sums, d, T(0));
    for (std::int64_t i = 0; i < d; ++i) {
      const std::int64_t channel = g * d + i;
      const T factor = weight != nullptr ? weight[channel] : T(1);
      const T* const s = layer_matrix[g] + i * layer_matrix.row_stride;
      const T* const p = cross[g] + i * cross.row_stride;
      if (dL_dweight != nullptr) {
        T product = 0;
        for (std::int64_t j = 0; j < d; ++j) product += p[j] * s[j];
        dL_dweight[channel] = product;
      }
      if (column_sums != nullptr) {
        const T along = factor * sum[channel];
        for (std::int64_t j = 0; j < d; ++j) column_sums[j] -= along * s[j];
      }
      const auto write = [&](Matrices<T> to, const T* from) {
        if (!to) return;
        T* const row = to[g] + i * to.row_stride;
        for (std::int64_t j = 0; j < d; ++j) row[j] = factor * from[j];
      };
      write(dL_dlayer_matrix, p);
      write(matrix, s);
    }
  });
}

#define KEEL_STAGES(T) KEEL_STAGE(weight_backward, T)
KEEL_FOR_REAL(KEEL_STAGES)
#undef KEEL_STAGES

}  // namespace keel::cpu
