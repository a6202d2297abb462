// The operators eigh and eigvalsh. Their gradient is eigh_backward, in gradient_rule.cpp.

#include "keel/eigh.h"

#include "autograd.h"
#include "check.h"
#include "device.h"
#include "gradient_rule_formula.h"
#include "keel/torch/eigh.h"
#include "matrix_tensors.h"
#include "ops/operators.h"
#include "second_at_repeats.h"

namespace keel::ops {
namespace {

constexpr const char* kEigh = "keel::eigh";

Tensors<2> eigh_kernel(const Tensor& matrix, StringView rule, bool descending) {
  check_matrices(kEigh, matrix, Numbers::real_or_complex);
  parsed(gradient_rule, kEigh, rule);  // report a bad rule now, not in backward
  if (matrix.is_meta()) return {empty_values(matrix), empty_matrices(matrix)};
  const auto type = matrix.scalar_type();
  const Tensor input = readable(in_compute_type(matrix));
  const Tensor values = empty_values(input), vectors = empty_matrices(input);
  const EighOrder order = descending ? EighOrder::descending : EighOrder::ascending;
  AT_DISPATCH_FLOATING_AND_COMPLEX_TYPES(input.scalar_type(), kEigh, [&] {
    using T = CoreType<scalar_t>;
    on_device_of(input, KEEL_STAGE(eigh<T>), matrices<const T>(input), values.data_ptr<RealOf<T>>(),
                 matrices<T>(vectors), order, nullptr);
  });
  return {values.to(type_of_values(matrix)), vectors.to(type)};
}

/// An extra output of the matrix's shape whose gradient goes straight to the matrix. It needs no memory, except under
/// functorch, where an outer grad must also find its way to the matrix.
Tensor tie_to(const Tensor& matrix) {
  using c10::DispatchKey;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const bool under_functorch =
      c10::impl::tls_is_dispatch_key_included(DispatchKey::FuncTorchDynamicLayerBackMode);
  return under_functorch ? matrix.view_as(matrix)
                         : matrix.new_empty({1}).expand_symint(matrix.sym_sizes());
}

variable_list eigh_gradient(const GraphNode::Pass& pass, const std::string& rule) {
  const variable_list &grads = pass.grads, &outputs = pass.saved;
  if (!grads[0].defined() && !grads[1].defined()) return {grads[2]};
  Tensor dL_dmatrix =
      eigh_backward(if_defined(grads[0]), if_defined(grads[1]), outputs[0], outputs[1], rule);
  if ((at::GradMode::is_enabled() || has_tangent(outputs) || has_tangent(grads)) &&
      std::holds_alternative<Masked>(gradient_rule(rule)))
    dL_dmatrix = with_second_at_repeats(dL_dmatrix, outputs[2], outputs[0], outputs[1],
                                        if_defined(grads[0]), if_defined(grads[1]), rule);
  return {plus(dL_dmatrix, grads[2])};
}

variable_list eigh_tangents(const Tensor& along, const Tensor& values, const Tensor& vectors,
                            const std::string& rule) {
  const WithoutAutocast in_its_type;
  const GradientRule chosen = gradient_rule(rule);
  const auto [by_values, by_vectors] = gradient_rule_tangents(chosen, values, vectors, along);
  const auto* const masked = std::get_if<Masked>(&chosen);
  if (masked == nullptr) return {by_values, by_vectors};
  return {once_at_repeats(*masked, by_values, values),
          once_at_repeats(*masked, by_vectors, values)};
}

Tensors<2> eigh_autograd(const Tensor& matrix, StringView rule, bool descending) {
  check_matrices(kEigh, matrix, Numbers::real_or_complex);
  if (!needs_graph({matrix})) return eigh.below_autograd(matrix, rule, descending);
  // Convert outside the node, so that backward gets the eigenvectors in the compute type.
  const Tensor m = in_compute_type(matrix);
  const auto [values, vectors] = eigh.below_autograd(m, rule, descending);
  const Tensor tie = tie_to(m);
  record({.name = kEigh,
          .inputs = {m},
          .outputs = {values, vectors, tie},
          .saved = {values, vectors, tie},
          .backward =
              [by = text(rule)](const GraphNode::Pass& pass) { return eigh_gradient(pass, by); },
          .forward =
              [&, values = values, vectors = vectors] {
                return eigh_tangents(tangent_of(m), values, vectors, text(rule));
              }});
  return {values.to(type_of_values(matrix)), vectors.to(matrix.scalar_type())};
}

constexpr const char* kEigvalsh = "keel::eigvalsh";

Tensor eigvalsh_kernel(const Tensor& matrix) {
  check_matrices(kEigvalsh, matrix, Numbers::real_or_complex);
  if (matrix.is_meta()) return empty_values(matrix);
  const Tensor input = readable(in_compute_type(matrix)), values = empty_values(input);
  AT_DISPATCH_FLOATING_AND_COMPLEX_TYPES(input.scalar_type(), kEigvalsh, [&] {
    using T = CoreType<scalar_t>;
    on_device_of(input, KEEL_STAGE(eigvalsh<T>), matrices<const T>(input),
                 values.data_ptr<RealOf<T>>(), EighOrder::ascending, nullptr);
  });
  return values.to(type_of_values(matrix));
}

/// With a gradient, the vectors are needed anyway.
Tensor eigvalsh_autograd(const Tensor& matrix) {
  check_matrices(kEigvalsh, matrix, Numbers::real_or_complex);
  if (needs_graph({matrix})) return std::get<0>(eigh(matrix, "masked", false));
  return eigvalsh.below_autograd(matrix);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(keel, m) {
  m.def(
      "eigh(Tensor matrix, str rule='masked', bool descending=False)"
      " -> (Tensor eigenvalues, Tensor eigenvectors)");
  m.def("eigvalsh(Tensor matrix) -> Tensor");
}
KEEL_OPERATOR("eigh", &eigh_kernel, &eigh_autograd)
KEEL_OPERATOR("eigvalsh", &eigvalsh_kernel, &eigvalsh_autograd)

}  // namespace keel::ops

namespace keel {

Eigh eigh(const torch::Tensor& matrix, const GradientRule& rule, const EighOptions& options) {
  ops::check_matrices("keel::eigh", matrix, ops::Numbers::real_or_complex);
  TORCH_CHECK(options.uplo == 'L' || options.uplo == 'U',
              "keel::eigh: expected uplo 'L' or 'U', got '", options.uplo, "'");
  auto [values, vectors] =
      ops::eigh(options.uplo == 'L' ? matrix : matrix.mH(), to_string(rule), options.descending);
  return {std::move(values), std::move(vectors)};
}

torch::Tensor eigvalsh(const torch::Tensor& matrix, char uplo) {
  ops::check_matrices("keel::eigvalsh", matrix, ops::Numbers::real_or_complex);
  TORCH_CHECK(uplo == 'L' || uplo == 'U', "keel::eigvalsh: expected uplo 'L' or 'U', got '", uplo,
              "'");
  return ops::eigvalsh(uplo == 'L' ? matrix : matrix.mH());
}

}  // namespace keel
