#include "keel/torch/singular.h"

#include <algorithm>

#include "autograd.h"
#include "check.h"
#include "matrix_tensors.h"
#include "ops/operators.h"
#include "singular_formula.h"
#include "singular_function.h"

namespace keel::ops {

using SingularTensors = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;

SingularTensors singular(const Tensor& matrix, StringView function, StringView rank) {
  static const auto op = operator_named<decltype(singular)>("keel::singular");
  return op.call(matrix, function, rank);
}

namespace {

constexpr const char* kSingular = "keel::singular";

RankPolicy checked_singular(const Tensor& matrix, StringView function, StringView rank) {
  check_rectangles(kSingular, matrix);
  parsed(singular_function, kSingular, function);
  const RankPolicy policy = parsed(rank_policy, kSingular, rank);
  TORCH_CHECK_VALUE(!std::holds_alternative<Algorithm1>(policy), kSingular,
                    ": expected rank full, leading_count or leading_energy, got ",
                    to_string(policy));
  return policy;
}

SingularTensors singular_kernel(const Tensor& matrix, StringView function, StringView rank) {
  const RankPolicy policy = checked_singular(matrix, function, rank);
  const SingularFunction f = singular_function({function.data(), function.size()});
  const WithoutAutocast in_its_type;
  const auto type = matrix.scalar_type();
  const auto [left, values, right] = ops::svd(in_compute_type(matrix), "masked");
  const Tensor kept =
      kept_values(f, policy, values, double(std::max(matrix.size(-2), matrix.size(-1))));
  const Tensor result = (left * of_values(f, values, kept).unsqueeze(-2)).matmul(right);
  return {result.to(type), left.to(type), values.to(type), right.to(type), kept};
}

SingularTensors singular_meta(const Tensor& matrix, StringView function, StringView rank) {
  checked_singular(matrix, function, rank);
  const c10::SymInt m = matrix.sym_size(-2), n = matrix.sym_size(-1), k = m < n ? m : n;
  return {empty_matrices(matrix), empty_beside(matrix, {m, k}), empty_beside(matrix, {k}),
          empty_beside(matrix, {k, n}), empty_rank(matrix)};
}

struct SingularNode : torch::autograd::Function<SingularNode> {
  static variable_list forward(AutogradContext* ctx, const Tensor& matrix,
                               const std::string& function, const std::string& rank) {
    const BelowAutograd below_autograd;
    auto [result, left, values, right, kept] = singular(matrix, function, rank);
    ctx->set_materialize_grads(false);
    ctx->mark_non_differentiable({left, values, right, kept});
    ctx->saved_data["function"] = function;
    ctx->saved_data["rank"] = rank;
    ctx->save_for_backward({matrix, result, left, values, right, kept});
    return {result, left, values, right, kept};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    if (!grads[0].defined()) return variable_list(3);
    const variable_list t = ctx->get_saved_variables();
    auto& data = ctx->saved_data;
    return {singular_backward(grads[0], t[0], t[1], t[2], t[3], t[4], t[5],
                              data["function"].toStringRef(), data["rank"].toStringRef()),
            Tensor(), Tensor()};
  }
};

SingularTensors singular_autograd(const Tensor& matrix, StringView function, StringView rank) {
  check_rectangles(kSingular, matrix);
  if (!needs_graph({matrix})) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    return singular(matrix, function, rank);
  }
  const variable_list outputs =
      SingularNode::apply(in_compute_type(matrix), text(function), text(rank));
  const auto type = matrix.scalar_type();
  return {outputs[0].to(type), outputs[1].to(type), outputs[2].to(type), outputs[3].to(type),
          outputs[4]};
}

Tensor pseudo_inverse(const Tensor& matrix, Optional<double> rtol) {
  check_rectangles("keel::pinv", matrix);
  const SingularFunction inverse = InverseValues{to_std(rtol)};
  return std::get<0>(singular(matrix, to_string(inverse), "full")).mT();
}

Tensor nearest_of_rank(const Tensor& matrix, StringView rank) {
  check_rectangles("keel::low_rank", matrix);
  return std::get<0>(singular(matrix, "identity", rank));
}

Tensor less_threshold(const Tensor& matrix, double threshold) {
  check_rectangles("keel::soft_threshold", matrix);
  return std::get<0>(
      singular(matrix, to_string(SingularFunction(SoftThreshold{threshold})), "full"));
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(keel, m) {
  m.def(
      "singular(Tensor matrix, str function, str rank='full') -> (Tensor result, Tensor left,"
      " Tensor values, Tensor right, Tensor kept)");
  m.def("pinv(Tensor matrix, float? rtol=None) -> Tensor", &pseudo_inverse);
  m.def("low_rank(Tensor matrix, str rank) -> Tensor", &nearest_of_rank);
  m.def("soft_threshold(Tensor matrix, float threshold) -> Tensor", &less_threshold);
}
KEEL_OPERATOR("singular", &singular_kernel, &singular_meta, &singular_autograd)

}  // namespace keel::ops

namespace keel {

Singular singular(const torch::Tensor& matrix, const SingularFunction& function,
                  const RankPolicy& rank) {
  ops::check_rectangles("keel::singular", matrix);
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
