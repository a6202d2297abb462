#include "keel/affine.h"

#include "activations_check.h"
#include "keel/moments.h"

namespace keel::reference {

void affine(Matrices<const double> matrix, const double* center, const double* bias,
            Activations<const double> input, Activations<double> output) {
  require_valid("keel::reference::affine", "input", input);
  require_same_shape("keel::reference::affine", "output", input, output);
  require_per_group("keel::reference::affine", "matrix", input, matrix);
  const std::int64_t d = input.group_size();
  for (std::int64_t k = 0; k < input.samples(); ++k)
    for (std::int64_t c = 0; c < input.channels; ++c) {
      double sum = bias != nullptr ? bias[c] : 0;
      for (std::int64_t j = 0; j < d; ++j) {
        const std::int64_t channel = c / d * d + j;
        const double shift = center != nullptr ? center[channel] : 0;
        sum += matrix[c / d][c % d * matrix.row_stride + j] *
               (input.data[input.index(k, channel)] - shift);
      }
      output.data[output.index(k, c)] = sum;
    }
}

void affine_backward(Matrices<const double> matrix, Activations<const double> dL_doutput,
                     Matrices<const double> dL_dcovariance, const double* dL_dmean,
                     Activations<const double> input, const double* mean,
                     Activations<double> dL_dinput) {
  require_valid("keel::reference::affine_backward", "dL_doutput", dL_doutput);
  require_same_shape("keel::reference::affine_backward", "dL_dinput", dL_doutput, dL_dinput);
  require_per_group("keel::reference::affine_backward", "matrix", dL_doutput, matrix);
  // Without dL_dcovariance the input is not read: any activations of that shape stand in for it.
  moments_backward(dL_dcovariance ? input : dL_doutput, mean, dL_dmean, dL_dcovariance, dL_dinput);
  const std::int64_t d = dL_doutput.group_size();
  for (std::int64_t k = 0; k < dL_doutput.samples(); ++k)
    for (std::int64_t c = 0; c < dL_doutput.channels; ++c)
      for (std::int64_t j = 0; j < d; ++j)
        dL_dinput.data[dL_dinput.index(k, c)] +=
            matrix[c / d][j * matrix.row_stride + c % d] *
            dL_doutput.data[dL_doutput.index(k, c / d * d + j)];
}

}  // namespace keel::reference
