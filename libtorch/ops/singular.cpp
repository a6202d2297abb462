// singular, U f(S) V^H, and the functions pinv, low_rank and soft_threshold. The gradient is singular_backward.cpp.

#include "keel/torch/singular.h"

#include <algorithm>
#include <cmath>

#include "autograd.h"
#include "check.h"
#include "matrix_tensors.h"
#include "ops/operators.h"
#include "singular_formula.h"
#include "singular_function.h"

namespace keel::ops {
namespace {

constexpr const char* kSingular = "keel::singular";

RankPolicy checked_policy(const char* operation, StringView rank) {
  const RankPolicy policy = parsed(rank_policy, operation, rank);
  TORCH_CHECK_VALUE(!std::holds_alternative<Algorithm1>(policy), operation,
                    ": expected rank full, leading_count or leading_energy, got ",
                    to_string(policy));
  return policy;
}

RankPolicy checked_singular(const Tensor& matrix, StringView function, StringView rank) {
  check_rectangles(kSingular, matrix, Numbers::real_or_complex);
  parsed(singular_function, kSingular, function);
  return checked_policy(kSingular, rank);
}

/// A threshold or a tolerance, in the words of the caller.
void check_number(const char* operation, const char* name, double number) {
  TORCH_CHECK_VALUE(number >= 0 && std::isfinite(number), operation, ": expected a finite ", name,
                    " >= 0, got ", number);
}

Tensors<5> singular_kernel(const Tensor& matrix, StringView function, StringView rank) {
  const RankPolicy policy = checked_singular(matrix, function, rank);
  if (matrix.is_meta()) {
    const auto [left, values, right] = empty_svd(matrix);
    return {empty_matrices(matrix), left, values, right, empty_rank(matrix)};
  }
  const SingularFunction f = singular_function({function.data(), function.size()});
  const WithoutAutocast in_its_type;
  const auto type = matrix.scalar_type();
  const auto [left, values, right] = svd(in_compute_type(matrix), "masked");
  const Tensor kept =
      kept_values(f, policy, values, double(std::max(matrix.size(-2), matrix.size(-1))));
  const Tensor result = (left * of_values(f, values, kept).unsqueeze(-2)).matmul(right);
  return {result.to(type), left.to(type), values.to(type_of_values(matrix)), right.to(type), kept};
}

Tensors<5> singular_autograd(const Tensor& matrix, StringView function, StringView rank) {
  check_rectangles(kSingular, matrix, Numbers::real_or_complex);
  if (!needs_graph({matrix})) return singular.below_autograd(matrix, function, rank);
  const Tensor a = in_compute_type(matrix);
  const auto [result, left, values, right, kept] = singular.below_autograd(a, function, rank);
  const auto derivative = [f = text(function), policy = text(rank)](
                              const Tensor& along, const variable_list& s) -> variable_list {
    return {singular_backward(along, s[0], s[1], s[2], s[3], s[4], s[5], f, policy)};
  };
  record({.name = kSingular,
          .inputs = {a},
          .outputs = {result},
          .saved = {a, result, left, values, right, kept},
          .backward =
              [derivative](const GraphNode::Pass& pass) {
                return derivative(pass.grads[0], pass.saved);
              },
          // Each pair of values has one factor, so the map is its own adjoint.
          .forward =
              [&, x = result, u = left, s = values, vh = right, r = kept] {
                return derivative(tangent_of(a), {primal_of(a), x, u, s, vh, r});
              }});
  const auto type = matrix.scalar_type();
  return {result.to(type), left.to(type), values.to(type_of_values(matrix)), right.to(type), kept};
}

Tensors<4> decompose_rectangles_kernel(const Tensor& matrix, StringView rank) {
  const auto [result, left, values, right, kept] =
      singular_kernel(in_compute_type(matrix), "one", rank);
  return {left, values, right, kept};
}

/// Its results are constants to autograd.
Tensors<4> decompose_rectangles_autograd(const Tensor& matrix, StringView rank) {
  return decompose_rectangles.below_autograd(matrix, rank);
}

Tensor pseudo_inverse(const Tensor& matrix, Optional<double> rtol) {
  check_rectangles("keel::pinv", matrix, Numbers::real_or_complex);
  if (rtol.has_value()) check_number("keel::pinv", "rtol", *rtol);
  const SingularFunction inverse = InverseValues{to_std(rtol)};
  return std::get<0>(singular(matrix, to_string(inverse), "full")).mH().resolve_conj();
}

Tensor nearest_of_rank(const Tensor& matrix, StringView rank) {
  check_rectangles("keel::low_rank", matrix, Numbers::real_or_complex);
  checked_policy("keel::low_rank", rank);
  return std::get<0>(singular(matrix, "identity", rank));
}

Tensor less_threshold(const Tensor& matrix, double threshold) {
  check_rectangles("keel::soft_threshold", matrix, Numbers::real_or_complex);
  check_number("keel::soft_threshold", "threshold", threshold);
  return std::get<0>(
      singular(matrix, to_string(SingularFunction(SoftThreshold{threshold})), "full"));
}

/// keel.singular of Python, for torch.jit.script.
Tensor singular_alone(const Tensor& matrix, StringView function, StringView rank) {
  return std::get<0>(singular(matrix, function, rank));
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(keel, m) {
  m.def(
      "singular(Tensor matrix, str function, str rank='full') -> (Tensor result, Tensor left,"
      " Tensor values, Tensor right, Tensor kept)");
  m.def(
      "decompose_rectangles(Tensor matrix, str rank='full') -> (Tensor left, Tensor values,"
      " Tensor right, Tensor kept)");
  m.def("singular_result(Tensor matrix, str function, str rank='full') -> Tensor", &singular_alone);
  m.def("pinv(Tensor matrix, float? rtol=None) -> Tensor", &pseudo_inverse);
  m.def("low_rank(Tensor matrix, str rank) -> Tensor", &nearest_of_rank);
  m.def("soft_threshold(Tensor matrix, float threshold) -> Tensor", &less_threshold);
}
KEEL_OPERATOR("singular", &singular_kernel, &singular_autograd)
KEEL_OPERATOR("decompose_rectangles", &decompose_rectangles_kernel, &decompose_rectangles_autograd)

}  // namespace keel::ops

namespace keel {

Singular singular(const torch::Tensor& matrix, const SingularFunction& function,
                  const RankPolicy& rank) {
  ops::check_rectangles("keel::singular", matrix, ops::Numbers::real_or_complex);
  auto outputs = ops::singular(matrix, to_string(function), to_string(rank));
  return {std::get<0>(outputs), std::get<4>(outputs)};
}

torch::Tensor pinv(const torch::Tensor& matrix, std::optional<double> rtol) {
  return ops::pseudo_inverse(matrix, ops::to_torch(rtol));
}
torch::Tensor low_rank(const torch::Tensor& matrix, const RankPolicy& rank) {
  return ops::nearest_of_rank(matrix, to_string(rank));
}
torch::Tensor soft_threshold(const torch::Tensor& matrix, double threshold) {
  return ops::less_threshold(matrix, threshold);
}

}  // namespace keel
