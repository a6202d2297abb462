#include "autograd.h"
#include "check.h"
#include "device.h"
#include "keel/spectral.h"
#include "matrix_tensors.h"
#include "ops/operators.h"

namespace keel::ops {

Tensor spectral_backward(const Tensor& grad_result, const Tensor& matrix, const Tensor& values,
                         const Tensor& vectors, const Tensor& rank, StringView function,
                         StringView rank_policy, StringView rule) {
  static const auto op = operator_named<decltype(spectral_backward)>("keel::spectral_backward");
  return op.call(grad_result, matrix, values, vectors, rank, function, rank_policy, rule);
}

namespace {

constexpr const char* kSpectralBackward = "keel::spectral_backward";

void check_spectral_backward(const Tensor& grad_result, const Tensor& matrix, const Tensor& values,
                             const Tensor& vectors, const Tensor& rank) {
  check_matrices(kSpectralBackward, vectors);
  check_like(kSpectralBackward, "grad_result", grad_result, vectors);
  check_like(kSpectralBackward, "matrix", matrix, vectors);
  check_values(kSpectralBackward, "values", values, vectors);
  check_rank(kSpectralBackward, rank, vectors);
}

Tensor spectral_backward_kernel(const Tensor& grad_result, const Tensor& matrix,
                                const Tensor& values, const Tensor& vectors, const Tensor& rank,
                                StringView function, StringView /*rank_policy*/, StringView rule) {
  check_spectral_backward(grad_result, matrix, values, vectors, rank);
  const SpectralFunction f = parsed(spectral_function, kSpectralBackward, function);
  const SpectralRule chosen = parsed(spectral_rule, kSpectralBackward, rule);
  const Tensor l = in_compute_type(values).contiguous(), r = rank.contiguous();
  const Tensor v = readable(in_compute_type(vectors));
  const Tensor dL_dresult = readable(in_compute_type(grad_result));
  const Tensor dL_dmatrix = empty_matrices(v);
  AT_DISPATCH_FLOATING_TYPES(v.scalar_type(), kSpectralBackward, [&] {
    on_device_of(v, KEEL_TWINS(spectral_backward<scalar_t>), f, chosen, l.data_ptr<scalar_t>(),
                 matrices<const scalar_t>(v), r.data_ptr<std::int64_t>(),
                 matrices<const scalar_t>(dL_dresult), matrices<scalar_t>(dL_dmatrix));
  });
  return dL_dmatrix.to(vectors.scalar_type());
}

Tensor spectral_backward_meta(const Tensor& grad_result, const Tensor& matrix, const Tensor& values,
                              const Tensor& vectors, const Tensor& rank, StringView function,
                              StringView /*rank_policy*/, StringView rule) {
  check_spectral_backward(grad_result, matrix, values, vectors, rank);
  parsed(spectral_function, kSpectralBackward, function);
  parsed(spectral_rule, kSpectralBackward, rule);
  return empty_matrices(vectors);
}

struct SpectralBackwardNode : torch::autograd::Function<SpectralBackwardNode> {
  static Tensor forward(AutogradContext* ctx, const Tensor& grad_result, const Tensor& matrix,
                        const Tensor& values, const Tensor& vectors, const Tensor& rank,
                        const std::string& function, const std::string& rank_policy,
                        const std::string& rule) {
    const BelowAutograd below_autograd;
    ctx->set_materialize_grads(false);
    ctx->saved_data["function"] = function;
    ctx->saved_data["rank_policy"] = rank_policy;
    ctx->saved_data["rule"] = rule;
    ctx->save_for_backward({grad_result, matrix, values, vectors});
    return spectral_backward(grad_result, matrix, values, vectors, rank, function, rank_policy,
                             rule);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    variable_list input_grads(8);
    if (!grads[0].defined()) return input_grads;
    auto& data = ctx->saved_data;
    const std::string policy = data["rank_policy"].toStringRef();
    const std::string rule = data["rule"].toStringRef();
    TORCH_CHECK(
        std::holds_alternative<FullRank>(rank_policy(policy)) &&
            std::holds_alternative<Exact>(spectral_rule(rule)),
        "keel::spectral: no second derivative under rule ", rule, " with rank policy ", policy,
        "; use rule exact with rank policy full, or build the function from keel::eigh, whose "
        "rules differentiate to any order where no eigenvalues repeat");
    const variable_list tensors = ctx->get_saved_variables();
    std::tie(input_grads[0], input_grads[1]) = spectral_second_backward(
        grads[0], tensors[0], tensors[1], tensors[2], tensors[3], data["function"].toStringRef());
    return input_grads;
  }
};

Tensor spectral_backward_autograd(const Tensor& grad_result, const Tensor& matrix,
                                  const Tensor& values, const Tensor& vectors, const Tensor& rank,
                                  StringView function, StringView rank_policy, StringView rule) {
  if (!needs_graph({grad_result, matrix})) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    return spectral_backward(grad_result, matrix, values, vectors, rank, function, rank_policy,
                             rule);
  }
  check_spectral_backward(grad_result, matrix, values, vectors, rank);
  return SpectralBackwardNode::apply(in_compute_type(grad_result), in_compute_type(matrix),
                                     in_compute_type(values), in_compute_type(vectors), rank,
                                     text(function), text(rank_policy), text(rule))
      .to(vectors.scalar_type());
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(keel, m) {
  m.def(
      "spectral_backward(Tensor grad_result, Tensor matrix, Tensor values, Tensor vectors,"
      " Tensor rank, str function, str rank_policy='full', str rule='exact') -> Tensor");
}
KEEL_OPERATOR("spectral_backward", &spectral_backward_kernel, &spectral_backward_meta,
              &spectral_backward_autograd)

}  // namespace keel::ops
