#include "autograd.h"
#include "check.h"
#include "complex_matrices.h"
#include "device.h"
#include "keel/spectral.h"
#include "matrix_tensors.h"
#include "ops/operators.h"

namespace keel::ops {
namespace {

constexpr const char* kSpectralBackward = "keel::spectral_backward";

void check_spectral_backward(const Tensor& grad_result, const Tensor& matrix, const Tensor& values,
                             const Tensor& vectors, const Tensor& rank) {
  check_matrices(kSpectralBackward, vectors, Numbers::real_or_complex);
  check_like(kSpectralBackward, "grad_result", grad_result, vectors);
  check_like(kSpectralBackward, "matrix", matrix, vectors);
  check_values(kSpectralBackward, "values", values, vectors);
  check_rank(kSpectralBackward, rank, vectors);
}

Tensor spectral_backward_kernel(const Tensor& grad_result, const Tensor& matrix,
                                const Tensor& values, const Tensor& vectors, const Tensor& rank,
                                StringView function, StringView rank_policy, StringView rule) {
  check_spectral_backward(grad_result, matrix, values, vectors, rank);
  const SpectralFunction f = parsed(spectral_function, kSpectralBackward, function);
  const SpectralRule chosen = parsed(spectral_rule, kSpectralBackward, rule);
  if (vectors.is_meta()) return empty_matrices(vectors);
  if (vectors.is_complex()) {
    const Tensor units = units_beside(values), ones = at::ones_like(units);
    const Tensor factors =
        spectral_backward_kernel(ones, units, values, units, rank, function, rank_policy, rule);
    const Tensor inside = hermitian_part(vectors.mH().matmul(grad_result).matmul(vectors));
    return hermitian_part(vectors.matmul(factors * inside).matmul(vectors.mH()));
  }
  const Tensor l = in_compute_type(values).contiguous(), r = rank.contiguous();
  const Tensor v = readable(in_compute_type(vectors));
  const Tensor dL_dresult = readable(in_compute_type(grad_result));
  const Tensor dL_dmatrix = empty_matrices(v);
  AT_DISPATCH_FLOATING_TYPES(v.scalar_type(), kSpectralBackward, [&] {
    on_device_of(v, KEEL_STAGE(spectral_backward<scalar_t>), f, chosen, l.data_ptr<scalar_t>(),
                 matrices<const scalar_t>(v), r.data_ptr<std::int64_t>(),
                 matrices<const scalar_t>(dL_dresult), matrices<scalar_t>(dL_dmatrix));
  });
  return dL_dmatrix.to(vectors.scalar_type());
}

void check_second_derivative(const std::string& policy, const std::string& rule) {
  TORCH_CHECK(
      std::holds_alternative<FullRank>(rank_policy(policy)) &&
          std::holds_alternative<Exact>(spectral_rule(rule)),
      "keel::spectral: no second derivative under rule ", rule, " with rank policy ", policy,
      "; use rule exact with rank policy full, or build the function from keel::eigh, whose "
      "rules differentiate to any order where no eigenvalues repeat");
}

Tensor spectral_backward_autograd(const Tensor& grad_result, const Tensor& matrix,
                                  const Tensor& values, const Tensor& vectors, const Tensor& rank,
                                  StringView function, StringView rank_policy, StringView rule) {
  if (!needs_graph({grad_result, matrix}))
    return spectral_backward.below_autograd(grad_result, matrix, values, vectors, rank, function,
                                            rank_policy, rule);
  check_spectral_backward(grad_result, matrix, values, vectors, rank);
  const Tensor g = in_compute_type(grad_result), m = in_compute_type(matrix);
  const Tensor l = in_compute_type(values), v = in_compute_type(vectors);
  const Tensor result =
      spectral_backward.below_autograd(g, m, l, v, rank, function, rank_policy, rule);
  record({.name = kSpectralBackward,
          .inputs = {g, m},
          .outputs = {result},
          .saved = {g, m, l, v},
          .backward = [f = text(function), policy = text(rank_policy),
                       by = text(rule)](const GraphNode::Pass& pass) -> variable_list {
            check_second_derivative(policy, by);
            const variable_list& s = pass.saved;
            auto [by_result, by_matrix] =
                spectral_second_backward(pass.grads[0], s[0], s[1], s[2], s[3], f);
            return {by_result, by_matrix};
          },
          .forward = [&]() -> variable_list {
            Tensor tangent;
            if (const Tensor along = tangent_of(g); along.defined())
              tangent =
                  spectral_backward(along, primal_of(m), l, v, rank, function, rank_policy, rule);
            if (const Tensor along = tangent_of(m); along.defined()) {
              check_second_derivative(text(rank_policy), text(rule));
              // The second derivative is symmetric in all three of its directions.
              tangent = plus(tangent, std::get<1>(spectral_second_backward(
                                          along, primal_of(g), primal_of(m), l, v, function)));
            }
            return {tangent};
          }});
  return result.to(vectors.scalar_type());
}

constexpr const char* kSecond = "keel::spectral_second_backward";

void check_spectral_second_backward(const Tensor& grad_grad_matrix, const Tensor& grad_result,
                                    const Tensor& matrix, const Tensor& values,
                                    const Tensor& vectors) {
  check_matrices(kSecond, vectors, Numbers::real_or_complex);
  check_like(kSecond, "grad_grad_matrix", grad_grad_matrix, vectors);
  check_like(kSecond, "grad_result", grad_result, vectors);
  check_like(kSecond, "matrix", matrix, vectors);
  check_values(kSecond, "values", values, vectors);
}

Tensors<2> spectral_second_backward_kernel(const Tensor& grad_grad_matrix,
                                           const Tensor& grad_result, const Tensor& matrix,
                                           const Tensor& values, const Tensor& vectors,
                                           StringView function) {
  check_spectral_second_backward(grad_grad_matrix, grad_result, matrix, values, vectors);
  const SpectralFunction f = parsed(spectral_function, kSecond, function);
  if (vectors.is_meta()) return {empty_matrices(vectors), empty_matrices(vectors)};
  if (vectors.is_complex()) {
    const Tensor v = real_form::of_vectors(vectors), unread = v;
    const auto [by_result, by_matrix] = spectral_second_backward_kernel(
        real_form::of_matrix(grad_grad_matrix), real_form::of_matrix(grad_result), unread,
        real_form::of_values(values), v, function);
    return {real_form::back(by_result), real_form::back(by_matrix)};
  }
  const Tensor l = in_compute_type(values).contiguous();
  const Tensor v = readable(in_compute_type(vectors));
  const Tensor dL_dresult = readable(in_compute_type(grad_result));
  const Tensor dL2_ddL_dmatrix = readable(in_compute_type(grad_grad_matrix));
  const Tensor dL2_ddL_dresult = empty_matrices(v), dL2_dmatrix = empty_matrices(v);
  AT_DISPATCH_FLOATING_TYPES(v.scalar_type(), kSecond, [&] {
    on_device_of(v, KEEL_STAGE(spectral_second_backward<scalar_t>), f, l.data_ptr<scalar_t>(),
                 matrices<const scalar_t>(v), matrices<const scalar_t>(dL_dresult),
                 matrices<const scalar_t>(dL2_ddL_dmatrix), matrices<scalar_t>(dL2_ddL_dresult),
                 matrices<scalar_t>(dL2_dmatrix));
  });
  const auto type = vectors.scalar_type();
  return {dL2_ddL_dresult.to(type), dL2_dmatrix.to(type)};
}

Tensors<2> spectral_second_backward_autograd(const Tensor& grad_grad_matrix,
                                             const Tensor& grad_result, const Tensor& matrix,
                                             const Tensor& values, const Tensor& vectors,
                                             StringView function) {
  const auto results = spectral_second_backward.below_autograd(grad_grad_matrix, grad_result,
                                                               matrix, values, vectors, function);
  if (needs_graph({grad_grad_matrix, grad_result, matrix}))
    record_without_derivative(
        "keel::spectral: no third derivative of " + text(function) +
            " under rule exact; build the function from keel::eigh, whose rules differentiate "
            "to any order where no eigenvalues repeat",
        {grad_grad_matrix, grad_result, matrix}, to_list(results));
  return results;
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(keel, m) {
  m.def(
      "spectral_backward(Tensor grad_result, Tensor matrix, Tensor values, Tensor vectors,"
      " Tensor rank, str function, str rank_policy='full', str rule='exact') -> Tensor");
  m.def(
      "spectral_second_backward(Tensor grad_grad_matrix, Tensor grad_result, Tensor matrix,"
      " Tensor values, Tensor vectors, str function) -> (Tensor, Tensor)");
}
KEEL_OPERATOR("spectral_backward", &spectral_backward_kernel, &spectral_backward_autograd)
KEEL_OPERATOR("spectral_second_backward", &spectral_second_backward_kernel,
              &spectral_second_backward_autograd)

}  // namespace keel::ops
