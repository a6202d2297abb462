// Functions of symmetric matrices that the caller evaluates at the eigenvalues. Everything is one form, linear in f and
// symmetric in its directions: <G, V f V^H>, its derivative <G, Df[H]>, and <G, D^2 f[H, K]>.

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

#include "autograd.h"
#include "check.h"
#include "divided_differences.h"
#include "gradient_rule_formula.h"
#include "keel/torch/spectral.h"
#include "matrix_tensors.h"
#include "ops/operators.h"
#include "singular_formula.h"

namespace keel::ops {
namespace {

constexpr const char* kSpectralOf = "keel::spectral";

/// A decomposition, and which of it is kept. Only the matrix is differentiable.
struct Spectrum {
  Tensor matrix, values, vectors, kept;
  std::int64_t terms;

  void check(const Jet& jet) const {
    check_matrices(kSpectralOf, vectors, Numbers::real_or_complex);
    check_like(kSpectralOf, "matrix", matrix, vectors);
    check_values(kSpectralOf, "values", values, vectors);
    if (kept.defined()) check_rank(kSpectralOf, kept, vectors);
    check_values(kSpectralOf, "f", jet.f, vectors);
    check_values(kSpectralOf, "slope", jet.slope, vectors);
    check_values(kSpectralOf, "curve", jet.curve, vectors);
  }
  void check_full(const char* what) const {
    TORCH_CHECK(
        !kept.defined(), kSpectralOf, ": no ", what,
        " of a function of your own with a rank policy, or of two matrices with rtol; use rank "
        "policy full");
  }

  Tensor in_basis(const Tensor& matrices) const {
    const Tensor inside = vectors.mH().matmul(matrices).matmul(vectors);
    return (inside + inside.mH()) / 2;
  }
  Tensor from_basis(const Tensor& middle) const {
    return vectors.matmul(middle).matmul(vectors.mH());
  }

  /// f_i / (l_i - l_j) for kept i and dropped j, by the series of Exact.
  Tensor across(const Tensor& f) const {
    const Tensor mine = is_kept(values, kept),
                 cut = mine.unsqueeze(-1).logical_and(mine.logical_not().unsqueeze(-2));
    const Tensor row = values.unsqueeze(-1), column = values.unsqueeze(-2);
    const Tensor leads = row.abs() >= column.abs(), none = at::zeros({}, values.options());
    const Tensor leader = at::where(leads, row, -column);
    const Tensor ratio = at::where(leads, column, row) / at::where(leads, row, column);
    const Tensor factor = f.unsqueeze(-1) / leader * geometric_sum(ratio, int(terms));
    const Tensor upper = at::where(cut.logical_and(leader != 0), factor, none);
    return upper + upper.mT();
  }

  Tensor factors(const Jet& jet) const {
    const Tensor all = DividedDifferences(values, jet).value;
    if (!kept.defined()) return all;
    const Tensor mine = is_kept(values, kept),
                 both = mine.unsqueeze(-1).logical_and(mine.unsqueeze(-2));
    return at::where(both, all, across(jet.f));
  }
};

Spectrum spectrum_of(const Tensor& matrix, const Tensor& values, const Tensor& vectors,
                     const Optional<Tensor>& kept, std::int64_t terms) {
  return {matrix, values, vectors, or_undefined(kept), terms};
}

Tensor apply(const Spectrum& at, const Jet& jet) {
  return spectral_of(at.matrix, at.values, at.vectors, if_defined(at.kept), jet.f, jet.slope,
                     jet.curve, at.terms);
}
Tensor derivative(const Tensor& along, const Spectrum& at, const Jet& jet) {
  return spectral_of_backward(along, at.matrix, at.values, at.vectors, if_defined(at.kept), jet.f,
                              jet.slope, jet.curve, at.terms);
}
Tensors<3> weights(const Tensor& along, const Spectrum& at, const Jet& jet) {
  return spectral_of_weights(along, at.matrix, at.values, at.vectors, if_defined(at.kept), jet.f,
                             jet.slope, jet.curve, at.terms);
}
Tensors<4> second(const Tensor& other, const Tensor& along, const Spectrum& at, const Jet& jet) {
  at.check_full("second derivative");
  return spectral_of_second(other, along, at.matrix, at.values, at.vectors, jet.f, jet.slope,
                            jet.curve);
}

// What a node saves, and reads again.

variable_list saved(const Spectrum& at, const Jet& jet, variable_list also = {}) {
  for (const Tensor& tensor :
       {at.matrix, at.values, at.vectors, at.kept, jet.f, jet.slope, jet.curve})
    also.push_back(tensor);
  return also;
}
Spectrum spectrum_in(const variable_list& s, std::int64_t terms) {
  const std::size_t at = s.size() - 7;
  return {s[at], s[at + 1], s[at + 2], s[at + 3], terms};
}
Jet jet_in(const variable_list& s) { return {s[s.size() - 3], s[s.size() - 2], s[s.size() - 1]}; }

/// Undefined parts are zero. All undefined is undefined.
Jet filled(const Tensor& f, const Tensor& slope, const Tensor& curve, const Tensor& like) {
  if (!f.defined() && !slope.defined() && !curve.defined()) return {};
  const auto or_zero = [&](const Tensor& x) { return x.defined() ? x : at::zeros_like(like); };
  return {or_zero(f), or_zero(slope), or_zero(curve)};
}
Jet tangent_jet(const Jet& jet) {
  return filled(tangent_of(jet.f), tangent_of(jet.slope), tangent_of(jet.curve), jet.f);
}
Spectrum primal_spectrum(Spectrum at) {
  at.matrix = primal_of(at.matrix);
  return at;
}
Jet primal_jet(const Jet& jet) {
  return {primal_of(jet.f), primal_of(jet.slope), primal_of(jet.curve)};
}

/// Calls `fill(result, inputs...)` for a few matrices at a time, which stay in a processor's cache. CUDA gets all at once.
void in_small_batches(const Tensor& result, const variable_list& inputs, const auto& fill) {
  const WithoutAutocast in_its_type;
  if (result.is_cuda() || result.dim() == 2) return fill(result, inputs);
  const std::int64_t n = result.size(-1), batch = n == 0 ? 0 : result.numel() / (n * n);
  const std::int64_t few = std::max<std::int64_t>(1, 32768 / std::max<std::int64_t>(1, n * n));
  const auto flat = [&](const Tensor& x) {
    return x.defined() ? x.flatten(0, result.dim() - 3) : x;
  };
  const Tensor results = flat(result);
  variable_list whole;
  for (const Tensor& x : inputs) whole.push_back(flat(x));
  at::parallel_for(0, batch, few, [&](std::int64_t first, std::int64_t last) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;  // of this thread
    for (std::int64_t b = first; b < last; b += few) {
      const std::int64_t count = std::min(few, last - b);
      variable_list part;
      for (const Tensor& x : whole) part.push_back(x.defined() ? x.narrow(0, b, count) : x);
      fill(results.narrow(0, b, count), part);
    }
  });
}

// V f V^H.

Tensor spectral_of_kernel(const Tensor& matrix, const Tensor& values, const Tensor& vectors,
                          const Optional<Tensor>& kept, const Tensor& f, const Tensor& slope,
                          const Tensor& curve, std::int64_t terms) {
  const Spectrum at = spectrum_of(matrix, values, vectors, kept, terms);
  at.check({f, slope, curve});
  const Tensor result = empty_matrices(vectors);
  if (vectors.is_meta()) return result;
  const Tensor used =
      at.kept.defined() ? at::where(is_kept(values, at.kept), f, at::zeros_like(f)) : f;
  in_small_batches(result, {vectors, used}, [](Tensor into, const variable_list& s) {
    at::matmul_out(into, s[0] * s[1].unsqueeze(-2), s[0].mH());
  });
  return result;
}

Tensor spectral_of_autograd(const Tensor& matrix, const Tensor& values, const Tensor& vectors,
                            const Optional<Tensor>& kept, const Tensor& f, const Tensor& slope,
                            const Tensor& curve, std::int64_t terms) {
  const Tensor result =
      spectral_of.below_autograd(matrix, values, vectors, kept, f, slope, curve, terms);
  if (!needs_graph({matrix, f, slope, curve})) return result;
  const Spectrum at = spectrum_of(matrix, values, vectors, kept, terms);
  const Jet jet{f, slope, curve};
  record({.name = kSpectralOf,
          .inputs = {matrix, f, slope, curve},
          .outputs = {result},
          .saved = saved(at, jet),
          .backward = [terms](const GraphNode::Pass& pass) -> variable_list {
            const Spectrum at = spectrum_in(pass.saved, terms);
            const Jet jet = jet_in(pass.saved);
            variable_list grads(4);
            if (pass.wanted(0)) grads[0] = derivative(pass.grads[0], at, jet);
            if (!pass.wanted(1) && !pass.wanted(2) && !pass.wanted(3)) return grads;
            std::tie(grads[1], grads[2], grads[3]) = weights(pass.grads[0], at, jet);
            // Zeros, which only a second derivative needs.
            if (!at::GradMode::is_enabled() && !has_tangent(grads) && !has_tangent(pass.grads))
              grads[2] = grads[3] = Tensor();
            return grads;
          },
          .forward = [&]() -> variable_list {
            const Spectrum primal = primal_spectrum(at);
            Tensor tangent;
            if (const Tensor along = tangent_of(matrix); along.defined())
              tangent = derivative(along, primal, primal_jet(jet));
            if (const Jet moved = tangent_jet(jet); moved.f.defined())
              tangent = plus(tangent, apply(primal, moved));
            return {tangent};
          }});
  return result;
}

// Its derivative.

Tensor spectral_of_backward_kernel(const Tensor& along, const Tensor& matrix, const Tensor& values,
                                   const Tensor& vectors, const Optional<Tensor>& kept,
                                   const Tensor& f, const Tensor& slope, const Tensor& curve,
                                   std::int64_t terms) {
  const Spectrum at = spectrum_of(matrix, values, vectors, kept, terms);
  at.check({f, slope, curve});
  check_like(kSpectralOf, "along", along, vectors);
  const Tensor result = empty_matrices(vectors);
  if (vectors.is_meta()) return result;
  const auto fill = [terms](Tensor into, const variable_list& s) {
    const Spectrum part = spectrum_in(s, terms);
    into.copy_(part.from_basis(part.in_basis(s[0]).mul_(part.factors(jet_in(s)))));
  };
  in_small_batches(result, saved(at, {f, slope, curve}, {along}), fill);
  return result;
}

Tensor spectral_of_backward_autograd(const Tensor& along, const Tensor& matrix,
                                     const Tensor& values, const Tensor& vectors,
                                     const Optional<Tensor>& kept, const Tensor& f,
                                     const Tensor& slope, const Tensor& curve, std::int64_t terms) {
  const Tensor result = spectral_of_backward.below_autograd(along, matrix, values, vectors, kept, f,
                                                            slope, curve, terms);
  if (!needs_graph({along, matrix, f, slope, curve})) return result;
  const Spectrum at = spectrum_of(matrix, values, vectors, kept, terms);
  const Jet jet{f, slope, curve};
  record({.name = "keel::spectral_of_backward",
          .inputs = {along, matrix, f, slope, curve},
          .outputs = {result},
          .saved = saved(at, jet, {along}),
          .backward = [terms](const GraphNode::Pass& pass) -> variable_list {
            const Spectrum at = spectrum_in(pass.saved, terms);
            const Jet jet = jet_in(pass.saved);
            const auto [by_matrix, by_f, by_slope, by_curve] =
                second(pass.grads[0], pass.saved[0], at, jet);
            return {derivative(pass.grads[0], at, jet), by_matrix, by_f, by_slope, by_curve};
          },
          .forward = [&]() -> variable_list {
            const Spectrum primal = primal_spectrum(at);
            const Jet here = primal_jet(jet);
            Tensor tangent;
            if (const Tensor moved = tangent_of(along); moved.defined())
              tangent = derivative(moved, primal, here);
            if (const Tensor moved = tangent_of(matrix); moved.defined())
              tangent = plus(tangent, std::get<0>(second(moved, primal_of(along), primal, here)));
            if (const Jet moved = tangent_jet(jet); moved.f.defined())
              tangent = plus(tangent, derivative(primal_of(along), primal, moved));
            return {tangent};
          }});
  return result;
}

// The gradient with respect to f is the diagonal of V^H G V. It moves with the matrix as <G, V c V^H> does for a function
// with values c; c' and c'' come from the gradients of slope and curve, which are zero themselves.

Tensors<3> spectral_of_weights_kernel(const Tensor& along, const Tensor& matrix,
                                      const Tensor& values, const Tensor& vectors,
                                      const Optional<Tensor>& kept, const Tensor& f,
                                      const Tensor& slope, const Tensor& curve,
                                      std::int64_t terms) {
  const Spectrum at = spectrum_of(matrix, values, vectors, kept, terms);
  at.check({f, slope, curve});
  check_like(kSpectralOf, "along", along, vectors);
  if (vectors.is_meta())
    return {empty_values(vectors), empty_values(vectors), empty_values(vectors)};
  const WithoutAutocast in_its_type;
  Tensor by_f = at::real((vectors.conj() * along.matmul(vectors)).sum(-2));
  if (at.kept.defined()) by_f = at::where(is_kept(values, at.kept), by_f, at::zeros_like(by_f));
  return {by_f, at::zeros_like(by_f), at::zeros_like(by_f)};
}

Tensors<3> spectral_of_weights_autograd(const Tensor& along, const Tensor& matrix,
                                        const Tensor& values, const Tensor& vectors,
                                        const Optional<Tensor>& kept, const Tensor& f,
                                        const Tensor& slope, const Tensor& curve,
                                        std::int64_t terms) {
  const auto results = spectral_of_weights.below_autograd(along, matrix, values, vectors, kept, f,
                                                          slope, curve, terms);
  if (!needs_graph({along, matrix})) return results;
  const Spectrum at = spectrum_of(matrix, values, vectors, kept, terms);
  const Jet jet{f, slope, curve};
  record({.name = "keel::spectral_of_weights",
          .inputs = {along, matrix},
          .outputs = to_list(results),
          .saved = saved(at, jet, {along}),
          .backward = [terms](const GraphNode::Pass& pass) -> variable_list {
            const Spectrum at = spectrum_in(pass.saved, terms);
            at.check_full("second derivative");
            const Jet other = filled(pass.grads[0], pass.grads[1], pass.grads[2], at.values);
            return {apply(at, other), derivative(pass.saved[0], at, other)};
          },
          .forward = [&]() -> variable_list {
            const Spectrum primal = primal_spectrum(at);
            const Jet here = primal_jet(jet);
            variable_list tangents(3);
            if (const Tensor moved = tangent_of(along); moved.defined())
              tangents[0] = std::get<0>(weights(moved, primal, here));
            if (const Tensor moved = tangent_of(matrix); moved.defined()) {
              const auto by = second(moved, primal_of(along), primal, here);
              tangents = {plus(tangents[0], std::get<1>(by)), std::get<2>(by), std::get<3>(by)};
            }
            return tangents;
          }});
  return results;
}

// The second derivative.

Tensors<4> spectral_of_second_kernel(const Tensor& other, const Tensor& along, const Tensor& matrix,
                                     const Tensor& values, const Tensor& vectors, const Tensor& f,
                                     const Tensor& slope, const Tensor& curve) {
  const Spectrum at{matrix, values, vectors, {}, 0};
  const Jet jet{f, slope, curve};
  at.check(jet);
  if (vectors.is_meta())
    return {empty_matrices(vectors), empty_values(vectors), empty_values(vectors),
            empty_values(vectors)};
  const WithoutAutocast in_its_type;
  const Tensor h = at.in_basis(other), g = at.in_basis(along);
  const DividedDifferences first(values, jet);
  // sum_j x_ij (h_ij g_jk + g_ij h_jk)
  const auto through = [](const Tensor& x, const Tensor& a, const Tensor& b) {
    return (x * a).matmul(b) + (x * b).matmul(a);
  };
  const Tensor once = through(first.value, h, g), rise = once - once.mH();
  const Tensor twice = through(first.along_first(values, jet), h, g);
  const Tensor close = (twice + twice.mH()) / 2;
  const Tensor size = slope.abs().unsqueeze(-1) + slope.abs().unsqueeze(-2);
  const Tensor error = at::where(first.near, std::pow(epsilon_of(values), 0.8) * size,
                                 first.noise / first.gap.abs());
  const Tensor noise = through(error, h.abs(), g.abs());
  const Tensor near =
      (first.gap == 0).logical_or((close * first.gap - rise).abs() <= noise + noise.mT());
  const Tensor by_matrix = at.from_basis(at::where(near, close, divided(rise, first.gap)));
  const Tensor pairs = at::real(h * g.conj()), none = at::zeros({}, pairs.options());
  const Tensor apart = at::where(first.near, none, pairs / first.gap);
  const Tensor together = at::where(first.near, pairs, none);
  return {by_matrix, 2 * apart.sum(-1), together.sum(-1), (together * first.gap).sum(-1) / -6};
}

Tensors<4> spectral_of_second_autograd(const Tensor& other, const Tensor& along,
                                       const Tensor& matrix, const Tensor& values,
                                       const Tensor& vectors, const Tensor& f, const Tensor& slope,
                                       const Tensor& curve) {
  const auto results =
      spectral_of_second.below_autograd(other, along, matrix, values, vectors, f, slope, curve);
  if (needs_graph({other, along, matrix, f, slope, curve}))
    record_without_derivative("keel::spectral: no third derivative of a function of your own",
                              {other, along, matrix, f, slope, curve}, to_list(results));
  return results;
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(keel, m) {
  m.def(
      "spectral_of(Tensor matrix, Tensor values, Tensor vectors, Tensor? kept, Tensor f,"
      " Tensor slope, Tensor curve, int terms=19) -> Tensor");
  m.def(
      "spectral_of_backward(Tensor along, Tensor matrix, Tensor values, Tensor vectors,"
      " Tensor? kept, Tensor f, Tensor slope, Tensor curve, int terms) -> Tensor");
  m.def(
      "spectral_of_weights(Tensor along, Tensor matrix, Tensor values, Tensor vectors,"
      " Tensor? kept, Tensor f, Tensor slope, Tensor curve, int terms)"
      " -> (Tensor, Tensor, Tensor)");
  m.def(
      "spectral_of_second(Tensor other, Tensor along, Tensor matrix, Tensor values,"
      " Tensor vectors, Tensor f, Tensor slope, Tensor curve) -> (Tensor, Tensor, Tensor, Tensor)");
}
KEEL_OPERATOR("spectral_of", &spectral_of_kernel, &spectral_of_autograd)
KEEL_OPERATOR("spectral_of_backward", &spectral_of_backward_kernel, &spectral_of_backward_autograd)
KEEL_OPERATOR("spectral_of_weights", &spectral_of_weights_kernel, &spectral_of_weights_autograd)
KEEL_OPERATOR("spectral_of_second", &spectral_of_second_kernel, &spectral_of_second_autograd)

}  // namespace keel::ops

namespace keel {

Spectral spectral(const torch::Tensor& matrix, const ElementwiseFunction& function,
                  const RankPolicy& rank, const Exact& rule) {
  ops::check_matrices("keel::spectral", matrix, ops::Numbers::real_or_complex);
  const auto [values, vectors, kept] = ops::decompose(matrix, to_string(rank));
  const torch::Tensor some = std::holds_alternative<FullRank>(rank) ? torch::Tensor() : kept;
  const auto [f, slope, curve] = ops::Jet::of("keel::spectral", function, matrix, values, some);
  return {ops::spectral_of(matrix.to(vectors.scalar_type()), values, vectors, ops::if_defined(some),
                           f, slope, curve, rule.terms)
              .to(matrix.scalar_type()),
          kept};
}

}  // namespace keel
