#include "keel/torch/kabsch.h"

#include <limits>

#include "check.h"
#include "gradient_rule_formula.h"
#include "ops/operators.h"
#include "singular_formula.h"

namespace keel::ops {
namespace {

constexpr const char* kKabsch = "keel::kabsch";

/// A scale that brings `numbers` into a range where products neither overflow nor underflow: the largest power of two that
/// does not exceed their largest magnitude over `dims`, or 1 if all are zero. Not differentiated.
Tensor unit_of(const Tensor& numbers, at::IntArrayRef dims) {
  const Tensor given = numbers.detach();
  if (given.sym_numel() == 0) return at::ones_like(given.sum(dims, /*keepdim=*/true));
  const double least = given.scalar_type() == at::kFloat ? 0x1p-126 : 0x1p-1022;
  const Tensor largest = given.abs().amax(dims, /*keepdim=*/true);
  return (largest + (largest == 0)).clamp(least, 1 / least).log2().floor().exp2();
}

/// Requires `given` to be (..., N), or (..., N, d) `with_d`, like the points `P` (..., N, d), with dimensions before these that
/// broadcast with theirs.
void check_beside(const char* name, const Tensor& given, const Tensor& P, bool with_d) {
  const std::int64_t own = with_d ? 2 : 1, batch = given.dim() - own;
  bool fits = batch >= 0 && given.sym_size(batch) == P.sym_size(-2) &&
              (!with_d || given.sym_size(-1) == P.sym_size(-1));
  for (std::int64_t i = 1; fits && i <= batch && i <= P.dim() - 2; ++i) {
    const auto mine = given.sym_size(batch - i), theirs = P.sym_size(P.dim() - 2 - i);
    fits = mine == theirs || mine == 1 || theirs == 1;
  }
  TORCH_CHECK(fits, kKabsch, ": expected ", name, with_d ? " (..., N, d)" : " (..., N)",
              " that broadcasts with points ", shape_of(P), ", got ", shape_of(given));
  TORCH_CHECK(given.scalar_type() == P.scalar_type(), kKabsch, ": expected ", name, " of type ",
              name_of(P.scalar_type()), ", got ", name_of(given.scalar_type()));
  check_place(kKabsch, name, given, P);
}

/// Consists of differentiable operators, so it needs no gradient of its own.
Tensors<3> register_points(const Tensor& P, const Tensor& Q, const Optional<Tensor>& weights,
                           bool scale) {
  TORCH_CHECK(P.dim() >= 2, kKabsch, ": expected points (..., N, d), got ", shape_of(P));
  check_rectangles(kKabsch, P);
  TORCH_CHECK(P.sym_size(-1) > 0, kKabsch, ": expected points (..., N, d) with d >= 1, got ",
              shape_of(P));
  check_rectangles(kKabsch, Q);
  check_beside("Q", Q, P, /*with_d=*/true);
  const WithoutAutocast in_its_type;
  Tensor p = in_compute_type(P), q = in_compute_type(Q), given;
  if (weights.has_value() && weights->defined()) {
    check_dense(kKabsch, *weights);
    check_beside("weights", *weights, P, /*with_d=*/false);
    check_beside("weights", *weights, Q, /*with_d=*/false);
    given = in_compute_type(*weights);
  }
  const auto like_p = [&](const Tensor& w) {
    return !w.defined() || w.sym_sizes() == p.sym_sizes().slice(0, p.dim() - 1);
  };
  if (q.sym_sizes() != p.sym_sizes() || !like_p(given)) {
    const auto all =
        at::broadcast_tensors({p, q, given.defined() ? given.unsqueeze(-1) : p.detach()});
    p = all[0], q = all[1];
    if (given.defined()) given = all[2].select(-1, 0);
  }
  Tensor w = at::ones_like(p.select(-1, 0)), counts;
  if (given.defined()) {
    w = given;
    // With a negative weight there may be no least sum.
    w = w.masked_fill(w < 0, std::numeric_limits<double>::quiet_NaN());
    w = w / unit_of(w, {-1});
    counts = (w != 0).to(w.scalar_type()).unsqueeze(-1);
  }
  // If all weights are zero, all shares are zero, and any rotation fits.
  const Tensor total = w.sum(-1, /*keepdim=*/true);
  const Tensor share = divide_where((total != 0).expand_as(w), w, total.expand_as(w)).unsqueeze(-1);
  Tensor p_mean = (share * p).sum(-2, /*keepdim=*/true);
  Tensor q_mean = (share * q).sum(-2, /*keepdim=*/true);
  // Points of zero weight must not affect the scale, however far away they are.
  const auto counted = [&](const Tensor& points) {
    return counts.defined() ? points * counts : points;
  };
  Tensor from = p - p_mean, to = q - q_mean;
  const Tensor p_unit = unit_of(counted(from), {-2, -1}), q_unit = unit_of(counted(to), {-2, -1});
  from = from / p_unit, to = to / q_unit;
  const Tensor weighted = share * from;
  // The farther the points are from zero, the less exact are their means. What that leaves in the centred points is
  // their own mean, which is found to more digits.
  const Tensor p_rest = weighted.sum(-2, /*keepdim=*/true);
  const Tensor q_rest = (share * to).sum(-2, /*keepdim=*/true);
  p_mean = p_mean + p_rest * p_unit, q_mean = q_mean + q_rest * q_unit;
  const Tensor covariance = to.mT().matmul(weighted) - q_rest.mT() * p_rest;
  const Tensor rotation = std::get<0>(procrustes(covariance, /*special=*/true));
  Tensor factor = at::ones_like(total.squeeze(-1)), moved = p_mean.matmul(rotation.mT());
  if (scale) {
    const Tensor spread = (weighted * from).sum({-2, -1}, /*keepdim=*/true) -
                          p_rest.square().sum({-2, -1}, /*keepdim=*/true);
    const Tensor along = (rotation * covariance).sum({-2, -1}, /*keepdim=*/true);
    // Points that differ only by rounding count as coincident.
    const double rounding = 4 * epsilon_of(p);
    const Tensor size =
        (share * (counted(p) / p_unit).square()).sum({-2, -1}, /*keepdim=*/true).detach();
    const Tensor some = (spread <= rounding * rounding * size).logical_not();  // keeps NaN
    const Tensor found = divide_where(some, along, spread);  // the factor between scaled points
    const Tensor back = at::where(some, found * q_unit / p_unit, at::ones_like(found));
    factor = back.squeeze(-1).squeeze(-1);
    // The product may be in range where the factor itself is not.
    moved = at::where(some, found * (moved / p_unit) * q_unit, moved);
  }
  const Tensor translation = (q_mean - moved).squeeze(-2);
  const auto type = P.scalar_type();
  return {rotation.to(type), translation.to(type), factor.to(type)};
}

/// keel.kabsch of Python without a scale, for torch.jit.script.
Tensors<2> rigid_motion(const Tensor& P, const Tensor& Q, const Optional<Tensor>& weights) {
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
