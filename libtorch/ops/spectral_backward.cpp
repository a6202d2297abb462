#include "autograd.h"
#include "check.h"
#include "device.h"
#include "keel/spectral.h"
#include "matrices.h"
#include "names.h"
#include "ops/calls.h"

namespace keel::ops {

Tensor spectral_backward(const Tensor& grad_result, const Tensor& matrix, const Tensor& values,
                         const Tensor& vectors, const Tensor& rank, StringView function,
                         double exponent, StringView rank_policy, StringView rule,
                         Optional<double> parameter) {
  static const auto op = operator_named<decltype(spectral_backward)>("keel::spectral_backward");
  return op.call(grad_result, matrix, values, vectors, rank, function, exponent, rank_policy, rule,
                 parameter);
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
                                StringView function, double exponent, StringView /*rank_policy*/,
                                StringView rule, Optional<double> parameter) {
  check_spectral_backward(grad_result, matrix, values, vectors, rank);
  const SpectralFunction f = spectral_function_of(kSpectralBackward, function, exponent);
  const SpectralRule chosen = spectral_rule_of(kSpectralBackward, rule, parameter);
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
                              double exponent, StringView /*rank_policy*/, StringView rule,
                              Optional<double> parameter) {
  check_spectral_backward(grad_result, matrix, values, vectors, rank);
  spectral_function_of(kSpectralBackward, function, exponent);
  spectral_rule_of(kSpectralBackward, rule, parameter);
  return empty_matrices(vectors);
}

struct SpectralBackwardNode : torch::autograd::Function<SpectralBackwardNode> {
  static Tensor forward(AutogradContext* ctx, const Tensor& grad_result, const Tensor& matrix,
                        const Tensor& values, const Tensor& vectors, const Tensor& rank,
                        const std::string& function, double exponent,
                        const std::string& rank_policy, const std::string& rule,
                        const std::optional<double>& parameter) {
    const BelowAutograd below_autograd;
    ctx->set_materialize_grads(false);
    ctx->saved_data["function"] = function;
    ctx->saved_data["exponent"] = exponent;
    ctx->saved_data["rank_policy"] = rank_policy;
    ctx->saved_data["rule"] = rule;
    ctx->saved_data["parameter"] = saved(parameter);
    ctx->save_for_backward({grad_result, matrix, values, vectors});
    return spectral_backward(grad_result, matrix, values, vectors, rank, function, exponent,
                             rank_policy, rule, to_torch(parameter));
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    variable_list input_grads(10);
    if (!grads[0].defined()) return input_grads;
    auto& data = ctx->saved_data;
    const std::string policy = data["rank_policy"].toStringRef();
    const std::string rule = data["rule"].toStringRef();
    TORCH_CHECK(
        policy == "full" && rule == "exact", "keel::spectral: no second derivative under rule ",
        to_string(spectral_rule_of(kSpectralBackward, rule, loaded(data["parameter"]))),
        " with rank policy ", policy,
        "; use rule exact with rank policy full, or build the function from keel::eigh, whose "
        "rules differentiate to any order where no eigenvalues repeat");
    const variable_list tensors = ctx->get_saved_variables();
    std::tie(input_grads[0], input_grads[1]) =
        spectral_second_backward(grads[0], tensors[0], tensors[1], tensors[2], tensors[3],
                                 data["function"].toStringRef(), data["exponent"].toDouble());
    return input_grads;
  }
};

Tensor spectral_backward_autograd(const Tensor& grad_result, const Tensor& matrix,
                                  const Tensor& values, const Tensor& vectors, const Tensor& rank,
                                  StringView function, double exponent, StringView rank_policy,
                                  StringView rule, Optional<double> parameter) {
  if (!needs_graph({grad_result, matrix})) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    return spectral_backward(grad_result, matrix, values, vectors, rank, function, exponent,
                             rank_policy, rule, parameter);
  }
  check_spectral_backward(grad_result, matrix, values, vectors, rank);
  return SpectralBackwardNode::apply(in_compute_type(grad_result), in_compute_type(matrix),
                                     in_compute_type(values), in_compute_type(vectors), rank,
                                     text(function), exponent, text(rank_policy), text(rule),
                                     to_std(parameter))
      .to(vectors.scalar_type());
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(keel, m) {
  m.def(
      "spectral_backward(Tensor grad_result, Tensor matrix, Tensor values, Tensor vectors,"
      " Tensor rank, str function, float exponent=1.0, str rank_policy='full', str rule='exact',"
      " float? parameter=None) -> Tensor");
}
TORCH_LIBRARY_IMPL(keel, CPU, m) { m.impl("spectral_backward", &spectral_backward_kernel); }
TORCH_LIBRARY_IMPL(keel, CUDA, m) { m.impl("spectral_backward", &spectral_backward_kernel); }
TORCH_LIBRARY_IMPL(keel, Meta, m) { m.impl("spectral_backward", &spectral_backward_meta); }
TORCH_LIBRARY_IMPL(keel, Autograd, m) { m.impl("spectral_backward", &spectral_backward_autograd); }

}  // namespace keel::ops
