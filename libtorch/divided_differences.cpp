#include "divided_differences.h"

#include <torch/autograd.h>

#include "autograd.h"
#include "check.h"
#include "gradient_rule_formula.h"
#include "singular_formula.h"

namespace keel::ops {
namespace {

Tensor row(const Tensor& of_values) { return of_values.unsqueeze(-1); }
Tensor column(const Tensor& of_values) { return of_values.unsqueeze(-2); }
Tensor sums(const Tensor& x) { return row(x) + column(x); }
Tensor differences(const Tensor& x) { return row(x) - column(x); }

/// A bound for the rounding error of f at each value: a few units in the last place of f, and of the value.
Tensor noise_at(const Tensor& values, const Tensor& f, const Tensor& slope) {
  return 4 * epsilon_of(values) * (f.abs() + (values * slope).abs());
}

/// An infinite f'', such as that of x^1.5 at zero, only makes the formula for close pairs less accurate.
Tensor finite(const Tensor& curve) {
  return at::where(curve.isfinite(), curve, at::zeros_like(curve));
}

/// The derivative of y = f(x), entry by entry, as part of a graph.
Tensor derivative_of(const Tensor& y, const Tensor& x) {
  if (!y.requires_grad()) return at::zeros_like(x);
  const Tensor slope = torch::autograd::grad({y.sum()}, {x}, {}, /*retain_graph=*/true,
                                             /*create_graph=*/true, /*allow_unused=*/true)[0];
  return slope.defined() ? slope : at::zeros_like(x);
}

/// The even values of f must not depend on the odd eigenvalues, nor these on the even ones. On CUDA the host would wait.
void check_entry_by_entry(const char* operation, const Tensor& x, const Tensor& y) {
  if (!x.is_cpu() || !y.requires_grad()) return;
  for (const std::int64_t some : {0, 1}) {
    const auto every_second = [](const Tensor& of, std::int64_t first) -> Tensor {
      return of.slice(-1, first, of.size(-1), 2);
    };
    const Tensor slope =
        torch::autograd::grad({every_second(y, some).sum()}, {x}, {}, /*retain_graph=*/true,
                              /*create_graph=*/false, /*allow_unused=*/true)[0];
    TORCH_CHECK_VALUE(
        !slope.defined() || !(every_second(slope, 1 - some).abs() > 0).any().item<bool>(),
        operation,
        ": expected a function of your own to map each eigenvalue by itself, got one whose value "
        "at "
        "an eigenvalue depends on the others");
  }
}

}  // namespace

Jet Jet::of(const char* operation, const ElementwiseFunction& f, const Tensor& matrix,
            const Tensor& values, const Tensor& kept) {
  const Tensor points =
      kept.defined() ? at::where(is_kept(values, kept), values, values.slice(/*dim=*/-1, 0, 1))
                     : values;
  const bool learns = f(points).requires_grad(), differentiates = needs_graph({matrix});
  const at::AutoGradMode with_graph(true);
  const Tensor x = points.detach().requires_grad_(true), y = f(x);
  TORCH_CHECK_VALUE(y.sizes() == x.sizes(), operation,
                    ": expected a function of your own to map each eigenvalue to one number, ",
                    shape_of(x), " to ", shape_of(x), ", got ", shape_of(y));
  TORCH_CHECK_VALUE(!y.is_complex(), operation,
                    ": expected a function of your own to have real values, got ",
                    name_of(y.scalar_type()));
  if (differentiates) check_entry_by_entry(operation, x, y);
  const Tensor values_of_f = y.to(x.scalar_type()), slope = derivative_of(values_of_f, x);
  const Tensor curve = derivative_of(slope, x);
  if (learns) return {values_of_f, slope, curve};
  return {values_of_f.detach(), slope.detach(), curve.detach()};
}

DividedDifferences::DividedDifferences(const Tensor& values, const Jet& jet)
    : gap(differences(values)), noise(sums(noise_at(values, jet.f, jet.slope))) {
  const Tensor rise = differences(jet.f), curve = finite(jet.curve);
  Tensor close =
      sums(jet.slope / 2);  // the trapezoid rule for the mean of f', corrected at its ends
  close.addcmul_(gap, differences(curve), -1.0 / 12);
  near = (close * gap).sub_(rise).abs_() <= noise;
  value = at::where(near, close, rise.div_(gap));
}

Tensor DividedDifferences::along_first(const Tensor& values, const Jet& jet) const {
  const Tensor curve = finite(jet.curve), rise = differences(jet.slope), mean = sums(curve / 2);
  const Tensor is_mean =
      (mean * gap - rise).abs() <= sums(noise_at(values, jet.slope, curve));  // of f'[x, y]
  const Tensor close = at::where(is_mean, mean, rise / gap) / 2 + differences(curve) / 12;
  return at::where(near, close, (row(jet.slope) - value) / gap);
}

}  // namespace keel::ops
