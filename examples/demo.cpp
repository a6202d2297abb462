// The gradient of L = <W, M^(-1/2)> under every rule, where eigenvalues repeat or nearly do.
// Run build/bin/keel_demo. Exits non-zero if the exact rule is not exact.

#include <fmt/core.h>
#include <torch/autograd.h>
#include <torch/types.h>

#include <functional>
#include <string>
#include <vector>

#include "keel/torch/keel.h"

namespace {

using torch::Tensor;
using Function = std::function<Tensor(const Tensor&)>;

struct Way {
  std::string name;
  Function inverse_root;
};

Tensor assembled(const Tensor& values, const Tensor& vectors) {
  return vectors.matmul(torch::diag(values.rsqrt())).matmul(vectors.t());
}

Tensor through_linalg(const Tensor& m) {
  const auto [values, vectors] = torch::linalg_eigh(m);
  return assembled(values, vectors);
}

Way through_eigh(const keel::GradientRule& rule) {
  return {"keel::eigh, " + keel::to_string(rule), [rule](const Tensor& m) {
            const auto [values, vectors] = keel::eigh(m, rule);
            return assembled(values, vectors);
          }};
}

const std::vector<Way> kWays = {
    {"torch::linalg_eigh", through_linalg},
    through_eigh(keel::Analytic{}),
    through_eigh(keel::PowerIteration{}),
    through_eigh(keel::Taylor{}),
    through_eigh(keel::Lorentzian{}),
    through_eigh(keel::Masked{}),
    {"keel::inv_sqrtm, exact", [](const Tensor& m) { return keel::inv_sqrtm(m); }},
};

Tensor gradient(const Function& loss, const Tensor& matrix) {
  const Tensor m = matrix.clone().requires_grad_();
  return torch::autograd::grad({loss(m)}, {m})[0];
}

/// The second opinion: differences of fourth order along every symmetric direction.
Tensor by_differences(const Function& loss, const Tensor& matrix) {
  const torch::NoGradGuard no_grad;
  const double step = 1e-3;
  const Tensor result = torch::zeros_like(matrix);
  for (std::int64_t i = 0; i < matrix.size(0); ++i) {
    for (std::int64_t j = 0; j <= i; ++j) {
      const auto at = [&](double distance) {
        Tensor moved = matrix.clone();
        moved[i][j] += distance / 2;
        moved[j][i] += distance / 2;
        return loss(moved).item<double>();
      };
      const double slope =
          (8 * (at(step) - at(-step)) - (at(2 * step) - at(-2 * step))) / (12 * step);
      result[i][j] = result[j][i] = slope;
    }
  }
  return result;
}

/// Prints one table; the relative error of the exact rule, which must be small.
double table(const char* title, const Tensor& matrix, const Tensor& weight, const char* reading) {
  const auto loss_of = [&](const Function& inverse_root) -> Function {
    return [&weight, inverse_root](const Tensor& m) { return (inverse_root(m) * weight).sum(); };
  };
  const Tensor exact = by_differences(loss_of(through_linalg), matrix);
  fmt::print("{}\n  {:<38} {:>12} {:>16}   finite?\n", title, "dL/dM through", "|dL/dM|",
             "relative error");
  double error = 0;
  for (const Way& way : kWays) {
    const Tensor g = gradient(loss_of(way.inverse_root), matrix);
    error = ((g - exact).norm() / exact.norm()).item<double>();
    const bool finite = g.isfinite().all().item<bool>();
    if (finite) {
      fmt::print("  {:<38} {:>12.4f} {:>16.1e}   yes\n", way.name, g.norm().item<double>(), error);
    } else {
      fmt::print("  {:<38} {:>12} {:>16}   NO\n", way.name, "-", "-");
    }
  }
  fmt::print("  {:<38} {:>12.4f}\n  -> {}\n\n", "(differences, float64)",
             exact.norm().item<double>(), reading);
  return error;
}

}  // namespace

int main() {
  keel::use_all_cores();
  const auto options = torch::TensorOptions(torch::kDouble);
  const Tensor signs = torch::tensor(
      {{1., 1., 1., 1.}, {1., -1., 1., -1.}, {1., 1., -1., -1.}, {1., -1., -1., 1.}}, options);
  const Tensor q = signs / 2;  // orthogonal, exact in binary
  const Tensor repeated = torch::diag(torch::tensor({2., 1., 1., 0.5}, options));
  const Tensor close = torch::diag(torch::tensor({2., 1., 0.999, 0.5}, options));
  const Tensor weight = torch::arange(16, options).view({4, 4}).sin();

  fmt::print("keel {}: the gradient of L = <W, M^(-1/2)>, a 4 x 4 whitening, float64\n\n",
             KEEL_VERSION);
  const double errors[] = {
      table("M = diag(2, 1, 1, 0.5): an eigenvalue repeated to the last bit", repeated, weight,
            "the textbook rule divides 0 by 0; the others stay finite, and the exact one is exact"),
      table("M = Q diag(2, 1, 1, 0.5) Q^T: repeated but for rounding", q.mm(repeated).mm(q.t()),
            weight,
            "finite is not right: the textbook rule now divides rounding by rounding, or 0 by 0 "
            "still"),
      table("M = Q diag(2, 1, 0.999, 0.5) Q^T: nearly repeated", q.mm(close).mm(q.t()), weight,
            "apart enough to divide by; the truncated series are bounded here, but biased"),
  };
  for (const double error : errors) {
    if (!(error < 1e-8)) {
      fmt::print(stderr, "keel_demo: the exact rule is off by {:.1e}, expected below 1e-8\n",
                 error);
      return 1;
    }
  }
}
