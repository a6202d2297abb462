#include "keel/torch/kabsch.h"

#include "check.h"
#include "gradient_rule_formula.h"
#include "ops/operators.h"
#include "singular_formula.h"

namespace keel::ops {
namespace {

constexpr const char* kKabsch = "keel::kabsch";

/// The power of two that brings the largest of `numbers` over these dimensions into [1, 2), so that products of two of them
/// stay in range; 1 where all are zero. No derivative goes through it.
Tensor to_unit_size(const Tensor& numbers, at::IntArrayRef dims) {
  const Tensor given = numbers.detach();
  if (given.sym_numel() == 0) return at::ones_like(given.sum(dims, /*keepdim=*/true));
  const Tensor largest = given.abs().amax(dims, /*keepdim=*/true);
  const double farthest =
      given.scalar_type() == at::kFloat ? 126 : 1022;  // its inverse is a number too
  const Tensor exponent = (-largest.log2().floor()).clamp(-farthest, farthest);
  return at::where(largest == 0, at::ones_like(largest), exponent.exp2());
}

/// Made of differentiable operators: its own gradient is theirs.
std::tuple<Tensor, Tensor, Tensor> register_points(const Tensor& P, const Tensor& Q,
                                                   const Optional<Tensor>& weights, bool scale) {
  check_rectangles(kKabsch, P);
  TORCH_CHECK(P.sym_size(-1) > 0, kKabsch, ": expected points (..., N, d) with d >= 1, got ",
              shape_of(P));
  check_like(kKabsch, "Q", Q, P);
  const WithoutAutocast in_its_type;
  Tensor p = in_compute_type(P), q = in_compute_type(Q), p_unit, q_unit;
  Tensor w = at::ones_like(p.select(-1, 0));
  if (weights.has_value()) {
    check_like(kKabsch, "weights", *weights, P.select(-1, 0));
    w = in_compute_type(*weights);
    w = w * to_unit_size(w, {-1});
    // What lies far off and has no weight says nothing of the others' size.
    const Tensor counts = (w != 0).to(w.scalar_type()).unsqueeze(-1);
    p_unit = to_unit_size(p * counts, {-2, -1}), q_unit = to_unit_size(q * counts, {-2, -1});
  } else {
    p_unit = to_unit_size(p, {-2, -1}), q_unit = to_unit_size(q, {-2, -1});
  }
  p = p * p_unit, q = q * q_unit;
  // No weight at all gives no shares, and some rotation.
  const Tensor total = w.sum(-1, /*keepdim=*/true);
  const Tensor share = divide_where((total != 0).expand_as(w), w, total.expand_as(w)).unsqueeze(-1);
  const Tensor p_mean = (share * p).sum(-2, /*keepdim=*/true);
  const Tensor q_mean = (share * q).sum(-2, /*keepdim=*/true);
  const Tensor from = p - p_mean, to = q - q_mean, weighted = share * from;
  const Tensor covariance = to.mT().matmul(weighted);
  const Tensor rotation = std::get<0>(procrustes(covariance, /*special=*/true));
  const Tensor p_size = p_unit.squeeze(-1), q_size = q_unit.squeeze(-1);
  const Tensor turned = p_mean.matmul(rotation.mT()).squeeze(-2);
  Tensor factor = at::ones_like(total.squeeze(-1)), moved = turned / p_size;
  if (scale) {
    const Tensor spread = (weighted * from).sum({-2, -1});
    const Tensor along = (rotation * covariance).sum({-2, -1});
    // Points that differ by rounding alone are one place.
    const double rounding = 4 * epsilon_of(p);
    const Tensor size = (share * p * p).sum({-2, -1}).detach();
    const Tensor some = (spread <= rounding * rounding * size).logical_not();  // NaN stays
    const Tensor found = divide_where(some, along, spread);  // between points of unit size
    factor = at::where(some, found * p_size.squeeze(-1) / q_size.squeeze(-1), factor);
    moved = at::where(some.unsqueeze(-1), found.unsqueeze(-1) * turned / q_size, moved);
  }
  const Tensor translation = q_mean.squeeze(-2) / q_size - moved;
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
