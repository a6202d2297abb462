#include "keel/spectral.h"

#include "autograd.h"
#include "check.h"
#include "complex_matrices.h"
#include "device.h"
#include "keel/eigh.h"
#include "keel/torch/spectral.h"
#include "matrix_tensors.h"
#include "ops/operators.h"

namespace keel::ops {
namespace {

constexpr const char* kSpectral = "keel::spectral";

/// The rank by the eigenvalues alone. Nothing is read from the matrices.
Tensor complex_rank(const RankPolicy& policy, const Tensor& values) {
  const Tensor unread = units_beside(values), kept = empty_rank(unread);
  AT_DISPATCH_FLOATING_TYPES(values.scalar_type(), kSpectral, [&] {
    const auto none = matrices<const scalar_t>(unread);
    on_device_of(values, KEEL_STAGE(spectral_rank<scalar_t>), policy, none,
                 values.data_ptr<scalar_t>(), none, kept.data_ptr<std::int64_t>());
  });
  return kept;
}

Tensors<3> decompose_kernel(const Tensor& matrix, StringView rank) {
  check_matrices(kSpectral, matrix, Numbers::real_or_complex);
  const RankPolicy policy = policy_for(kSpectral, rank, matrix);
  if (matrix.is_complex() && !matrix.is_meta()) {
    const auto [values, vectors] = eigh.below_autograd(matrix, "masked", /*descending=*/true);
    return {values, vectors, complex_rank(policy, values)};
  }
  const Tensor input = readable(in_compute_type(matrix));
  const Tensor values = empty_values(input), vectors = empty_matrices(input);
  const Tensor kept = empty_rank(input);
  if (matrix.is_meta()) return {values, vectors, kept};
  AT_DISPATCH_FLOATING_TYPES(input.scalar_type(), kSpectral, [&] {
    const auto m = matrices<const scalar_t>(input);
    const auto v = matrices<scalar_t>(vectors);
    auto* const l = values.data_ptr<scalar_t>();
    on_device_of(input, [&](const auto& where) {
      KEEL_STAGE(eigh<scalar_t>)(where, m, l, v, EighOrder::descending, nullptr);
      KEEL_STAGE(spectral_rank<scalar_t>)
      (where, policy, m, l, v, kept.data_ptr<std::int64_t>());
    });
  });
  return {values, vectors, kept};
}

/// V f(values) V^H over the kept ones.
Tensor applied(const SpectralFunction& f, const Tensor& values, const Tensor& vectors,
               const Tensor& kept) {
  if (vectors.is_complex()) {
    const Tensor diagonal = applied(f, values, units_beside(values), kept).diagonal(0, -2, -1);
    return hermitian_part((vectors * diagonal.unsqueeze(-2)).matmul(vectors.mH()));
  }
  const Tensor result = empty_matrices(vectors);
  AT_DISPATCH_FLOATING_TYPES(vectors.scalar_type(), kSpectral, [&] {
    on_device_of(vectors, KEEL_STAGE(spectral<scalar_t>), f, values.data_ptr<scalar_t>(),
                 matrices<const scalar_t>(vectors), kept.data_ptr<std::int64_t>(),
                 matrices<scalar_t>(result));
  });
  return result;
}

Tensors<4> spectral_kernel(const Tensor& matrix, StringView function, StringView rank,
                           StringView rule) {
  check_matrices(kSpectral, matrix, Numbers::real_or_complex);
  const SpectralFunction f = parsed(spectral_function, kSpectral, function);
  parsed(spectral_rule, kSpectral, rule);  // report a bad rule now, not in backward
  const auto [values, vectors, found] = decompose_kernel(matrix, rank);
  const auto type = matrix.scalar_type();
  const Tensor result =
      matrix.is_meta() ? empty_matrices(vectors) : applied(f, values, vectors, found);
  return {result.to(type), values.to(type_of_values(matrix)), vectors.to(type), found};
}

/// Its results are constants to autograd.
Tensors<3> decompose_autograd(const Tensor& matrix, StringView rank) {
  return decompose.below_autograd(matrix, rank);
}

Tensors<4> spectral_autograd(const Tensor& matrix, StringView function, StringView rank,
                             StringView rule) {
  check_matrices(kSpectral, matrix, Numbers::real_or_complex);
  if (!needs_graph({matrix})) return spectral.below_autograd(matrix, function, rank, rule);
  const Tensor m = in_compute_type(matrix);
  const auto [result, values, vectors, found] = spectral.below_autograd(m, function, rank, rule);
  const auto derivative = [f = text(function), policy = text(rank), by = text(rule)](
                              const Tensor& along, const Tensor& at, const Tensor& l,
                              const Tensor& v, const Tensor& r) -> variable_list {
    return {spectral_backward(along, at, l, v, r, f, policy, by)};
  };
  record(
      {.name = kSpectral,
       .inputs = {m},
       .outputs = {result},
       .saved = {m, values, vectors, found},
       .backward =
           [derivative](const GraphNode::Pass& pass) {
             const variable_list& s = pass.saved;
             return derivative(pass.grads[0], s[0], s[1], s[2], s[3]);
           },
       // Each pair of eigenvalues has one factor, so the map is its own adjoint.
       .forward = [&] { return derivative(tangent_of(m), primal_of(m), values, vectors, found); }});
  const auto type = matrix.scalar_type();
  return {result.to(type), values.to(type_of_values(matrix)), vectors.to(type), found};
}

// The named functions call spectral, so they need no kernels or gradients of their own.

template <SpectralFunction::Kind kind, OperatorName name>
Tensor named(const Tensor& matrix, StringView rule) {
  check_matrices(name.letters, matrix, Numbers::real_or_complex);  // in the words of the caller
  return std::get<0>(spectral(matrix, to_string(SpectralFunction{kind}), "full", rule));
}

Tensor powm(const Tensor& matrix, double exponent, StringView rule) {
  check_matrices("keel::powm", matrix, Numbers::real_or_complex);
  const SpectralFunction power{SpectralFunction::Kind::power, exponent};
  return std::get<0>(spectral(matrix, to_string(power), "full", rule));
}

/// keel.spectral of Python, for torch.jit.script.
Tensor spectral_alone(const Tensor& matrix, StringView function, StringView rank, StringView rule) {
  return std::get<0>(spectral(matrix, function, rank, rule));
}

Tensor projector(const Tensor& matrix, StringView rank, StringView rule) {
  check_matrices("keel::projector", matrix, Numbers::real_or_complex);
  policy_for("keel::projector", rank, matrix);
  return std::get<0>(spectral(matrix, "one", rank, rule));
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(keel, m) {
  using Kind = SpectralFunction::Kind;
  m.def(
      "decompose(Tensor matrix, str rank='full') -> (Tensor values, Tensor vectors, Tensor kept)");
  m.def(
      "spectral(Tensor matrix, str function, str rank='full', str rule='exact')"
      " -> (Tensor result, Tensor values, Tensor vectors, Tensor kept)");
  m.def("spectral_result(Tensor matrix, str function, str rank='full', str rule='exact') -> Tensor",
        &spectral_alone);
  m.def("sqrtm(Tensor matrix, str rule='exact') -> Tensor", &named<Kind::sqrt, "keel::sqrtm">);
  m.def("inv_sqrtm(Tensor matrix, str rule='exact') -> Tensor",
        &named<Kind::inv_sqrt, "keel::inv_sqrtm">);
  m.def("invm(Tensor matrix, str rule='exact') -> Tensor", &named<Kind::inv, "keel::invm">);
  m.def("logm(Tensor matrix, str rule='exact') -> Tensor", &named<Kind::log, "keel::logm">);
  m.def("expm(Tensor matrix, str rule='exact') -> Tensor", &named<Kind::exp, "keel::expm">);
  m.def("powm(Tensor matrix, float exponent, str rule='exact') -> Tensor", &powm);
  m.def("projector(Tensor matrix, str rank, str rule='exact') -> Tensor", &projector);
}
KEEL_OPERATOR("decompose", &decompose_kernel, &decompose_autograd)
KEEL_OPERATOR("spectral", &spectral_kernel, &spectral_autograd)

}  // namespace keel::ops

namespace keel {

Spectral spectral(const torch::Tensor& matrix, const SpectralFunction& function,
                  const RankPolicy& rank, const SpectralRule& rule) {
  ops::check_matrices("keel::spectral", matrix, ops::Numbers::real_or_complex);
  auto [result, values, vectors, kept] =
      ops::spectral(matrix, to_string(function), to_string(rank), to_string(rule));
  return {std::move(result), std::move(kept)};
}

using Kind = SpectralFunction::Kind;

torch::Tensor sqrtm(const torch::Tensor& matrix, const SpectralRule& rule) {
  ops::check_matrices("keel::sqrtm", matrix, ops::Numbers::real_or_complex);
  return spectral(matrix, {Kind::sqrt}, FullRank{}, rule).result;
}
torch::Tensor inv_sqrtm(const torch::Tensor& matrix, const SpectralRule& rule) {
  ops::check_matrices("keel::inv_sqrtm", matrix, ops::Numbers::real_or_complex);
  return spectral(matrix, {Kind::inv_sqrt}, FullRank{}, rule).result;
}
torch::Tensor invm(const torch::Tensor& matrix, const SpectralRule& rule) {
  ops::check_matrices("keel::invm", matrix, ops::Numbers::real_or_complex);
  return spectral(matrix, {Kind::inv}, FullRank{}, rule).result;
}
torch::Tensor logm(const torch::Tensor& matrix, const SpectralRule& rule) {
  ops::check_matrices("keel::logm", matrix, ops::Numbers::real_or_complex);
  return spectral(matrix, {Kind::log}, FullRank{}, rule).result;
}
torch::Tensor expm(const torch::Tensor& matrix, const SpectralRule& rule) {
  ops::check_matrices("keel::expm", matrix, ops::Numbers::real_or_complex);
  return spectral(matrix, {Kind::exp}, FullRank{}, rule).result;
}
torch::Tensor powm(const torch::Tensor& matrix, double exponent, const SpectralRule& rule) {
  ops::check_matrices("keel::powm", matrix, ops::Numbers::real_or_complex);
  return spectral(matrix, {Kind::power, exponent}, FullRank{}, rule).result;
}
torch::Tensor projector(const torch::Tensor& matrix, const RankPolicy& rank,
                        const SpectralRule& rule) {
  return ops::projector(matrix, to_string(rank), to_string(rule));
}

}  // namespace keel
