#include "lab/train/layer_state.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "lab/storage/json.h"

namespace keel::lab {
namespace {

using nlohmann::json;
using torch::Tensor;

json list_of(const Tensor& tensor) {
  if (!tensor.defined()) return nullptr;
  if (tensor.dim() == 0)
    return tensor.scalar_type() == torch::kLong ? json(tensor.item<std::int64_t>())
                                                : finite_or_null(tensor.item<double>());
  json list = json::array();
  for (std::int64_t i = 0; i < tensor.size(0); ++i) list.push_back(list_of(tensor[i]));
  return list;
}

}  // namespace

double LayerState::smallest_gap() const {
  if (!values.defined() || values.size(-1) < 2) return std::numeric_limits<double>::quiet_NaN();
  const std::int64_t n = values.size(-1);
  Tensor gaps = values.narrow(-1, 0, n - 1) - values.narrow(-1, 1, n - 1);
  if (rank.defined()) {
    const Tensor dropped = torch::arange(n - 1, torch::kLong) >= rank.unsqueeze(-1);
    gaps = gaps.masked_fill(dropped, std::numeric_limits<double>::infinity());
  }
  return gaps.min().item<double>();
}

std::int64_t LayerState::smallest_rank() const {
  return rank.defined() && rank.numel() > 0 ? rank.min().item<std::int64_t>() : 0;
}

LayerStates layer_states(const ResNet& model, Covariances covariances) {
  const torch::NoGradGuard no_grad;
  LayerStates states;
  for (const Normed* part : model->tested()) {
    LayerState& state = states.emplace_back();
    state.name = part->norm_name();
    const auto* whitening = part->norm()->as<keel::nn::WhiteningImpl>();
    if (whitening == nullptr || !whitening->eigenvalues().defined()) continue;
    const auto here = [](const Tensor& tensor) {
      return tensor.detach().to(torch::kCPU, torch::kFloat64).contiguous();
    };
    // Power iteration finds them in any order.
    state.values = std::get<0>(here(whitening->eigenvalues()).sort(-1, /*descending=*/true));
    if (covariances == Covariances::kWith) state.covariance = here(whitening->covariance());
    state.rank = whitening->kept().detach().to(torch::kCPU);
  }
  return states;
}

double smallest_gap(const LayerStates& states) {
  double least = std::numeric_limits<double>::quiet_NaN();
  for (const LayerState& state : states) least = std::fmin(least, state.smallest_gap());
  return least;
}

std::int64_t smallest_rank(const LayerStates& states) {
  std::int64_t least = 0;
  for (const LayerState& state : states)
    if (const auto rank = state.smallest_rank(); rank > 0)
      least = least == 0 ? rank : std::min(least, rank);
  return least;
}

json to_json(const LayerStates& states, std::int64_t step) {
  std::int64_t room = kMostCovarianceNumbers;
  json layers = json::array();
  for (const LayerState& state : states) {
    const std::int64_t numbers = state.covariance.defined() ? state.covariance.numel() : 0;
    const bool fits = numbers <= room;
    if (fits) room -= numbers;
    layers.push_back({{"name", state.name},
                      {"values", list_of(state.values)},
                      {"covariance", fits ? list_of(state.covariance) : json()},
                      {"rank", list_of(state.rank)},
                      {"smallest_gap", finite_or_null(state.smallest_gap())}});
  }
  return {
      {"step", step}, {"smallest_gap", finite_or_null(smallest_gap(states))}, {"layers", layers}};
}

}  // namespace keel::lab
