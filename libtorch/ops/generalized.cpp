// A x = l B x for symmetric or Hermitian A and positive definite B: with W^H B W = I, the eigenvectors of W^H A W are W^-1 x.

#include "keel/torch/generalized.h"
#include "autograd.h"
#include "check.h"
#include "complex_matrices.h"
#include "matrix_tensors.h"
#include "ops/operators.h"
#include "singular_formula.h"

namespace keel::ops {
namespace {

/// The matrix whose lower triangle is that of x. Its gradient goes to x as it is, symmetric.
Tensor from_lower(const Tensor& x) {
  return with_derivatives_of(hermitian_of_lower(x.detach()), x);
}

/// A and B with the same batch dimensions. Their own are not broadcast: a vector is no matrix.
std::vector<Tensor> beside(const char* operation, const Tensor& a, const Tensor& b) {
  check_matrices(operation, a, Numbers::real_or_complex);
  check_matrices(operation, b, Numbers::real_or_complex);
  bool fits = a.sym_size(-1) == b.sym_size(-1);
  for (std::int64_t i = 3; fits && i <= std::min(a.dim(), b.dim()); ++i) {
    const auto mine = a.sym_size(-i), theirs = b.sym_size(-i);
    fits = mine == theirs || mine == 1 || theirs == 1;
  }
  TORCH_CHECK_VALUE(fits, operation, ": expected B (..., n, n) that broadcasts with A ",
                    shape_of(a), ", got ", shape_of(b));
  return at::broadcast_tensors({a, b});
}

/// A and B, of which B is factored.
class Pencil {
 public:
  Tensor kept;    ///< how many directions B sees
  Tensor unseen;  ///< the projector onto the others, undefined if there are none
  Tensor inside;  ///< W^H A W

  Pencil(const char* operation, const Tensor& given_a, const Tensor& given_b,
         Optional<double> rtol) {
    const auto both = beside(operation, given_a, given_b);
    const Tensor &a = both[0], &b = both[1];
    check_like(operation, "B", b, a);
    TORCH_CHECK_VALUE(!rtol.has_value() || (*rtol >= 0 && *rtol < 1), operation,
                      ": expected 0 <= rtol < 1, got ", rtol.value_or(0));
    const Tensor matrix = from_lower(in_compute_type(a)), metric = in_compute_type(b);
    if (rtol.has_value()) {
      take_root(metric, *rtol);
      inside = root_.matmul(matrix).matmul(root_);
      return;
    }
    // A B that is not positive definite gives NaN.
    const auto [factor, info] = at::linalg_cholesky_ex(metric);
    factor_ = nan_where(info != 0, factor);
    kept = at::ones_like(metric.diagonal(0, -2, -1), at::kLong).sum(-1);
    const auto solved = [&](const Tensor& x) {
      return at::linalg_solve_triangular(factor_, x, /*upper=*/false);
    };
    inside = solved(solved(matrix).mH());
  }

  /// W x.
  Tensor outside(const Tensor& x) const {
    if (root_.defined()) return root_.matmul(x);
    return at::linalg_solve_triangular(factor_.mH(), x, /*upper=*/true);
  }

 private:
  Tensor factor_;  ///< L with B = L L^H and W = L^-H, or undefined
  Tensor
      root_;  ///< W = B^(-1/2) on the eigenvectors whose eigenvalues are above rtol times the largest

  void take_root(const Tensor& metric, double rtol) {
    const auto [values, vectors, all] = decompose(metric, "full");
    kept = (values > rtol * values.slice(-1, 0, 1)).sum(-1);
    const Tensor mine = is_kept(values, kept);
    const Tensor safe = at::where(mine, values, at::ones_like(values)), f = safe.rsqrt();
    const Tensor slope = -0.5 * f / safe, curve = -1.5 * slope / safe;
    root_ = spectral_of(metric, values, vectors, kept, f, slope, curve, Exact{}.terms);
    const Tensor beside = at::where(mine, at::zeros_like(values), at::ones_like(values));
    unseen = (vectors * beside.unsqueeze(-2)).matmul(vectors.mH());
  }
};

constexpr const char* kGeneralized = "keel::generalized_eigh";

Tensors<3> generalized_eigh(const Tensor& matrix, const Tensor& metric, StringView rule,
                            Optional<double> rtol, bool descending) {
  const WithoutAutocast in_its_type;
  const Pencil pencil(kGeneralized, matrix, metric, rtol);
  const auto type = matrix.scalar_type();
  if (!pencil.unseen.defined()) {
    const auto [values, vectors] = eigh(pencil.inside, rule, descending);
    return {values.to(type_of_values(matrix)), pencil.outside(vectors).to(type), pencil.kept};
  }
  // Directions that B does not see come last: they get an eigenvalue beyond all others.
  const Tensor size =
      2 * at::linalg_vector_norm(pencil.inside.detach(), 2, {{-2, -1}}, /*keepdim=*/true);
  const Tensor beyond = at::where(size == 0, at::ones_like(size), size);
  const auto [values, vectors] =
      eigh(pencil.inside + (descending ? -beyond : beyond) * pencil.unseen, rule, descending);
  const Tensor mine = is_kept(values, pencil.kept), all = pencil.outside(vectors);
  return {at::where(mine, values, at::zeros_like(values)).to(type_of_values(matrix)),
          at::where(mine.unsqueeze(-2), all, at::zeros_like(all)).to(type), pencil.kept};
}

Tensor generalized_projector(const Tensor& matrix, const Tensor& metric, StringView rank,
                             StringView rule, Optional<double> rtol) {
  constexpr const char* operation = "keel::generalized_projector";
  const WithoutAutocast in_its_type;
  const Pencil pencil(operation, matrix, metric, rtol);
  policy_for(operation, rank, matrix);
  const Tensor inside = std::get<0>(spectral(pencil.inside, "one", rank, rule));
  return pencil.outside(pencil.outside(inside).mH()).to(matrix.scalar_type());
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(keel, m) {
  m.def(
      "generalized_eigh(Tensor matrix, Tensor B, str rule='masked', float? rtol=None,"
      " bool descending=False) -> (Tensor eigenvalues, Tensor eigenvectors, Tensor kept)",
      &generalized_eigh);
  m.def(
      "generalized_projector(Tensor matrix, Tensor B, str rank, str rule='exact',"
      " float? rtol=None) -> Tensor",
      &generalized_projector);
}

}  // namespace keel::ops

namespace keel {

GeneralizedEigh generalized_eigh(const torch::Tensor& matrix, const torch::Tensor& metric,
                                 const GradientRule& rule, std::optional<double> rtol,
                                 bool descending) {
  auto [values, vectors, kept] =
      ops::generalized_eigh(matrix, metric, to_string(rule), ops::to_torch(rtol), descending);
  return {std::move(values), std::move(vectors), std::move(kept)};
}

torch::Tensor generalized_projector(const torch::Tensor& matrix, const torch::Tensor& metric,
                                    const RankPolicy& rank, const SpectralRule& rule,
                                    std::optional<double> rtol) {
  return ops::generalized_projector(matrix, metric, to_string(rank), to_string(rule),
                                    ops::to_torch(rtol));
}

}  // namespace keel
