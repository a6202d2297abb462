#include "keel/eigh.h"

#include "autograd.h"
#include "check.h"
#include "device.h"
#include "keel/torch/eigh.h"
#include "matrix_tensors.h"
#include "ops/operators.h"
#include "second_at_repeats.h"

namespace keel::ops {

std::tuple<Tensor, Tensor> eigh(const Tensor& matrix, StringView rule, bool descending) {
  static const auto op = operator_named<decltype(eigh)>("keel::eigh");
  return op.call(matrix, rule, descending);
}

namespace {

constexpr const char* kEigh = "keel::eigh";

std::tuple<Tensor, Tensor> eigh_kernel(const Tensor& matrix, StringView rule, bool descending) {
  check_matrices(kEigh, matrix);
  parsed(gradient_rule, kEigh, rule);  // a bad rule is an error now, not in some backward
  const auto type = matrix.scalar_type();
  const Tensor input = readable(in_compute_type(matrix));
  const Tensor values = empty_values(input), vectors = empty_matrices(input);
  const EighOrder order = descending ? EighOrder::descending : EighOrder::ascending;
  AT_DISPATCH_FLOATING_TYPES(input.scalar_type(), kEigh, [&] {
    on_device_of(input, KEEL_TWINS(eigh<scalar_t>), matrices<const scalar_t>(input),
                 values.data_ptr<scalar_t>(), matrices<scalar_t>(vectors), order, nullptr);
  });
  return {values.to(type), vectors.to(type)};
}

std::tuple<Tensor, Tensor> eigh_meta(const Tensor& matrix, StringView rule, bool /*descending*/) {
  check_matrices(kEigh, matrix);
  parsed(gradient_rule, kEigh, rule);
  return {empty_values(matrix), empty_matrices(matrix)};
}

struct EighNode : torch::autograd::Function<EighNode> {
  static variable_list forward(AutogradContext* ctx, const Tensor& matrix, const std::string& rule,
                               bool descending) {
    const BelowAutograd below_autograd;
    auto [values, vectors] = eigh(matrix, rule, descending);
    ctx->set_materialize_grads(false);
    ctx->saved_data["rule"] = rule;
    // Of the matrix's shape: its gradient goes straight to the matrix. Without memory, except where
    // an outer functorch.grad has to find the way to the matrix too.
    using c10::DispatchKey;
    const bool layered =
        c10::impl::tls_is_dispatch_key_included(DispatchKey::FuncTorchDynamicLayerBackMode);
    const Tensor tie =
        layered ? matrix.view_as(matrix) : matrix.new_empty({1}).expand_symint(matrix.sym_sizes());
    ctx->save_for_backward({values, vectors, tie});
    return {values, vectors, tie};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    if (!grads[0].defined() && !grads[1].defined()) return {grads[2], Tensor(), Tensor()};
    const variable_list outputs = ctx->get_saved_variables();
    const std::string rule = ctx->saved_data["rule"].toStringRef();
    Tensor dL_dmatrix =
        eigh_backward(if_defined(grads[0]), if_defined(grads[1]), outputs[0], outputs[1], rule);
    if (at::GradMode::is_enabled() && std::holds_alternative<Masked>(gradient_rule(rule)))
      dL_dmatrix = with_second_at_repeats(dL_dmatrix, outputs[2], outputs[0], outputs[1],
                                          if_defined(grads[0]), if_defined(grads[1]), rule);
    if (grads[2].defined()) dL_dmatrix = dL_dmatrix + grads[2];
    return {dL_dmatrix, Tensor(), Tensor()};
  }
};

std::tuple<Tensor, Tensor> eigh_autograd(const Tensor& matrix, StringView rule, bool descending) {
  check_matrices(kEigh, matrix);
  if (!needs_graph({matrix})) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    return eigh(matrix, rule, descending);
  }
  // Converting outside the node keeps the eigenvectors that backward needs in the computing type.
  const variable_list outputs = EighNode::apply(in_compute_type(matrix), text(rule), descending);
  const auto type = matrix.scalar_type();
  return {outputs[0].to(type), outputs[1].to(type)};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(keel, m) {
  m.def(
      "eigh(Tensor matrix, str rule='masked', bool descending=False)"
      " -> (Tensor eigenvalues, Tensor eigenvectors)");
}
KEEL_OPERATOR("eigh", &eigh_kernel, &eigh_meta, &eigh_autograd)

}  // namespace keel::ops

namespace keel {

Eigh eigh(const torch::Tensor& matrix, const GradientRule& rule, const EighOptions& options) {
  ops::check_matrices("keel::eigh", matrix);
  TORCH_CHECK(options.uplo == 'L' || options.uplo == 'U',
              "keel::eigh: expected uplo 'L' or 'U', got '", options.uplo, "'");
  auto [values, vectors] =
      ops::eigh(options.uplo == 'L' ? matrix : matrix.mT(), to_string(rule), options.descending);
  return {std::move(values), std::move(vectors)};
}

}  // namespace keel
