#include "lab/train/layer_state.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

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
  const Tensor gaps = values.narrow(-1, 0, n - 1) - values.narrow(-1, 1, n - 1);
  return gaps.min().item<double>();
}

std::int64_t LayerState::smallest_rank() const {
  return rank.defined() && rank.numel() > 0 ? rank.min().item<std::int64_t>() : 0;
}

LayerState layer_state(ResNet& model) {
  const torch::NoGradGuard no_grad;
  LayerState state;
  const auto layer = model->first_norm();
  std::ostringstream words;
  words << *layer;
  state.layer = words.str();
  const auto* whitening = layer->as<keel::nn::WhiteningImpl>();
  if (whitening == nullptr || !whitening->values().defined()) return state;
  // Sorted: power iteration finds them in any order.
  state.values = std::get<0>(
      whitening->values().detach().to(torch::kCPU, torch::kFloat64).sort(-1, /*descending=*/true));
  state.covariance = whitening->covariance().detach().to(torch::kCPU, torch::kFloat64).contiguous();
  state.rank = whitening->rank().detach().to(torch::kCPU);
  return state;
}

json to_json(const LayerState& state, std::int64_t step) {
  return {{"layer", state.layer},
          {"step", step},
          {"values", list_of(state.values)},
          {"covariance", list_of(state.covariance)},
          {"rank", list_of(state.rank)},
          {"smallest_gap", finite_or_null(state.smallest_gap())}};
}

}  // namespace keel::lab
