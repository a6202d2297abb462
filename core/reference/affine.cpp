#include "keel/affine.h"

#include "activations_check.h"
#include "reference/gated.h"

namespace keel::reference {

void affine(Matrices<const double> matrix, const double* center, const double* bias,
            Activations<const double> input, Activations<double> output) {
  check_affine("keel::reference::affine", matrix, input, output);
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
      if (output.residual != nullptr) sum += output.residual[output.index(k, c)];
      output.data[output.index(k, c)] = output.rectified && sum < 0 ? 0 : sum;
    }
}

void affine_backward(Matrices<const double> matrix, Activations<const double> dL_doutput,
                     Matrices<const double> dL_dcovariance, const double* dL_dmean,
                     Activations<const double> input, const double* mean,
                     Activations<double> dL_dinput) {
  check_affine_backward("keel::reference::affine_backward", matrix, dL_doutput, dL_dcovariance,
                        input, dL_dinput);
  const std::int64_t d = dL_doutput.group_size();
  const double m = double(dL_doutput.samples());
  for (std::int64_t k = 0; k < dL_doutput.samples(); ++k)
    for (std::int64_t c = 0; c < dL_doutput.channels; ++c) {
      const std::int64_t group = c / d, i = c % d;
      double gradient = dL_dmean != nullptr ? dL_dmean[c] / m : 0;
      for (std::int64_t j = 0; j < d; ++j) {
        const std::int64_t channel = group * d + j;
        gradient += matrix[group][j * matrix.row_stride + i] * read(dL_doutput, k, channel);
        if (dL_dcovariance)
          gradient += (dL_dcovariance[group][i * dL_dcovariance.row_stride + j] +
                       dL_dcovariance[group][j * dL_dcovariance.row_stride + i]) /
                      m * (input.data[input.index(k, channel)] - mean[channel]);
      }
      dL_dinput.data[dL_dinput.index(k, c)] = gradient;
    }
}

}  // namespace keel::reference
