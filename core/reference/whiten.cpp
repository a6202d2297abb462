#include "keel/whiten.h"

#include <vector>

#include "keel/affine.h"
#include "keel/moments.h"
#include "whiten_check.h"

namespace keel::reference {
namespace {

/// diag(weight) times each group's matrix.
std::vector<double> weighted(const double* weight, Matrices<const double> matrices) {
  std::vector<double> result;
  for (std::int64_t g = 0; g < matrices.batch; ++g)
    for (std::int64_t i = 0; i < matrices.n; ++i)
      for (std::int64_t j = 0; j < matrices.n; ++j)
        result.push_back((weight != nullptr ? weight[g * matrices.n + i] : 1) *
                         matrices[g][i * matrices.row_stride + j]);
  return result;
}

}  // namespace

void whiten(const LayerMap& map, Activations<const double> input, const double* weight,
            const double* bias, const WhitenState<double>& state, Activations<double> output) {
  check_whiten("keel::reference::whiten", input, state);
  moments(input, state.mean, state.covariance);
  layer_matrix(map, state.covariance, state.layer_matrix, state.spectrum);
  const std::vector<double> matrix = weighted(weight, state.layer_matrix);
  affine(contiguous(matrix.data(), input.groups, input.group_size()), state.mean, bias, input,
         output);
}

void whiten_backward(const LayerMap& map, const SpectralRule& rule,
                     Activations<const double> dL_doutput, Activations<const double> input,
                     const double* weight, const WhitenState<const double>& state,
                     Activations<double> dL_dinput, double* dL_dweight, double* dL_dbias) {
  check_whiten_backward("keel::reference::whiten_backward", dL_doutput, input, state);
  const std::int64_t channels = input.channels, d = input.group_size();
  const Matrices<const double> S = state.layer_matrix;
  std::vector<double> P(std::size_t(channels * d)), dL_dcovariance(P.size());
  const auto per_group = [&](auto& numbers) { return contiguous(numbers.data(), input.groups, d); };
  cross_moments(dL_doutput, input, state.mean, dL_dbias, per_group(P));

  std::vector<double> dL_dmean(std::size_t(channels), 0.0);
  for (std::int64_t c = 0; c < channels; ++c) {
    dL_dweight[c] = 0;
    for (std::int64_t j = 0; j < d; ++j) {
      const double entry = S[c / d][c % d * S.row_stride + j];
      dL_dweight[c] += P[std::size_t(c * d + j)] * entry;
      dL_dmean[std::size_t(c / d * d + j)] -=
          entry * (weight != nullptr ? weight[c] : 1) * dL_dbias[c];
    }
  }
  const std::vector<double> matrix = weighted(weight, S),
                            dL_dlayer_matrix = weighted(weight, per_group(P));
  layer_matrix_backward(map, rule, state.covariance, state.spectrum, per_group(dL_dlayer_matrix),
                        per_group(dL_dcovariance));
  affine_backward(per_group(matrix), dL_doutput, per_group(dL_dcovariance), dL_dmean.data(), input,
                  state.mean, dL_dinput);
}

}  // namespace keel::reference
