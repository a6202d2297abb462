#include "keel/torch/kabsch.h"

#include "check.h"
#include "gradient_rule_formula.h"
#include "ops/operators.h"
#include "singular_formula.h"

namespace keel::ops {
namespace {

constexpr const char* kKabsch = "keel::kabsch";

/// Made of differentiable operators: its own gradient is theirs.
std::tuple<Tensor, Tensor, Tensor> register_points(const Tensor& P, const Tensor& Q,
                                                   const Optional<Tensor>& weights, bool scale) {
  check_rectangles(kKabsch, P);
  check_like(kKabsch, "Q", Q, P);
  const WithoutAutocast in_its_type;
  const Tensor p = in_compute_type(P), q = in_compute_type(Q);
  Tensor w = at::ones_like(p.select(-1, 0));
  if (weights.has_value()) {
    check_like(kKabsch, "weights", *weights, P.select(-1, 0));
    w = in_compute_type(*weights);
  }
  // No weight at all gives no shares, and some rotation.
  const Tensor total = w.sum(-1, /*keepdim=*/true);
  const Tensor share = divide_where((total != 0).expand_as(w), w, total.expand_as(w)).unsqueeze(-1);
  const Tensor p_mean = (share * p).sum(-2, /*keepdim=*/true);
  const Tensor q_mean = (share * q).sum(-2, /*keepdim=*/true);
  const Tensor from = p - p_mean, to = q - q_mean, weighted = share * from;
  const Tensor covariance = to.mT().matmul(weighted);
  const Tensor rotation = std::get<0>(procrustes(covariance, /*special=*/true));
  Tensor factor = at::ones_like(total.squeeze(-1));
  if (scale) {
    const Tensor spread = (weighted * from).sum({-2, -1});
    const Tensor along = (rotation * covariance).sum({-2, -1});
    // Points that differ by rounding alone are one place.
    const double rounding = 4 * epsilon_of(p);
    const Tensor size = (share * p * p).sum({-2, -1}).detach();
    const Tensor some = spread > rounding * rounding * size;
    factor = at::where(some, divide_where(some, along, spread), factor);
  }
  const Tensor turned = p_mean.matmul(rotation.mT()).squeeze(-2);
  const Tensor translation = q_mean.squeeze(-2) - factor.unsqueeze(-1) * turned;
  const auto type = P.scalar_type();
  return {rotation.to(type), translation.to(type), factor.to(type)};
}

/// What Python's keel.kabsch returns without a scale, for torch.jit.script.
std::tuple<Tensor, Tensor> rigid_motion(const Tensor& P, const Tensor& Q,
                                        const Optional<Tensor>& weights) {
  auto [rotation, translation, scale] = register_points(P, Q, weights, /*scale=*/false);
  return {rotation, translation};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(keel, m) {
  m.def(
      "kabsch(Tensor P, Tensor Q, Tensor? weights=None, bool scale=False)"
      " -> (Tensor rotation, Tensor translation, Tensor scale)",
      &register_points);
  m.def(
      "rigid_motion(Tensor P, Tensor Q, Tensor? weights=None)"
      " -> (Tensor rotation, Tensor translation)",
      &rigid_motion);
}

}  // namespace keel::ops

namespace keel {

Registration kabsch(const torch::Tensor& P, const torch::Tensor& Q, const torch::Tensor& weights,
                    bool scale) {
  auto [rotation, translation, factor] =
      ops::register_points(P, Q, ops::if_defined(weights), scale);
  return {std::move(rotation), std::move(translation), std::move(factor)};
}

}  // namespace keel
