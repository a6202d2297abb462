#include "lab/report/spectrum_study.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/autograd.h>

#include <cmath>
#include <limits>

#include "keel/torch/keel.h"
#include "lab/require.h"

namespace keel::lab::report {
namespace {

using torch::Tensor;

constexpr int kWholeSeries = 1'000'000;
constexpr double kAsymmetry = 1e-5;  // typical of float32 products of a matrix and its transpose

Tensor symmetric(const Tensor& matrix) {
  const auto shape =
      fmt::format("{}", fmt::join(matrix.sizes().begin(), matrix.sizes().end(), ", "));
  require(matrix.dim() == 2 && matrix.size(0) == matrix.size(1) && matrix.size(0) > 0,
          "expected (n, n), got ({})", shape);
  require(matrix.isfinite().all().item<bool>(), "expected finite numbers, got NaN or infinity");
  const double off = (matrix - matrix.t()).abs().max().item<double>();
  const double size = matrix.abs().max().item<double>();
  require(off <= kAsymmetry * size,
          "expected a symmetric matrix, got one off by {:.1e} of its largest entry", off / size);
  return matrix / 2 + matrix.t() / 2;  // the sum of two large numbers may overflow
}

/// The matrix as the rules are compared on it. Where another size of the matrix only multiplies all gradients by the same
/// number, its entries are scaled to about 1: gradients such as M^(-3/2) leave float64's range long before M does.
Tensor of_unit_size(const Tensor& matrix, const StudyOptions& options) {
  if (std::holds_alternative<Algorithm1>(options.policy)) return matrix;
  int exponent = 0;
  std::frexp(matrix.abs().max().item<double>(), &exponent);
  const int half = exponent / 2;  // 2^-exponent itself may overflow
  return matrix * std::ldexp(1.0, -half) * std::ldexp(1.0, half - exponent);
}

std::vector<SpectralRule> compared_rules(const StudyOptions& options) {
  if (!options.rules.empty()) return options.rules;
  PowerIteration power;
  Taylor taylor;
  if (options.terms) power.terms = taylor.terms = int(*options.terms);
  return {Analytic{}, power, taylor, Lorentzian{}, Masked{}};
}

/// dL/dM of L = sum over draws of <W_k, M_k^(-1/2)>; all M_k are equal.
Tensor gradients(const Tensor& matrices, const Tensor& weights, const StudyOptions& options,
                 const SpectralRule& rule) {
  const Tensor m = matrices.clone().requires_grad_();
  const Tensor loss = (keel::spectral(m, {}, options.policy, rule).result * weights).sum();
  return torch::autograd::grad({loss}, {m})[0];
}

std::int64_t rank_of(const Tensor& matrix, const RankPolicy& policy) {
  SpectralFunction one{SpectralFunction::Kind::one};
  return keel::spectral(matrix, one, policy).kept.item<std::int64_t>();
}

}  // namespace

double table1_terms(double ratio) {
  if (ratio <= 0) return 1;
  if (!(ratio < 1)) return std::numeric_limits<double>::infinity();
  return std::ceil(std::log(0.05) / std::log(ratio));
}

SpectrumStudy study(const Tensor& given, const StudyOptions& options) {
  const Tensor matrix = symmetric(given.to(torch::kDouble));
  SpectrumStudy result;
  const Tensor values = keel::eigh(matrix, Masked{}, {.descending = true}).eigenvalues.contiguous();
  result.values.assign(values.data_ptr<double>(), values.data_ptr<double>() + values.numel());
  for (std::size_t i = 0; i + 1 < result.values.size(); ++i)
    result.neighbours.push_back({std::int64_t(i), result.values[i], result.values[i + 1]});
  result.rank = rank_of(matrix, Algorithm1{.literal = true});
  result.energy_count = rank_of(matrix, LeadingEnergy{0.99});

  auto generator = at::detail::createCPUGenerator(options.seed);
  const auto n = matrix.size(0);
  const Tensor weights = torch::randn({options.draws, n, n}, generator, torch::kDouble);
  const Tensor matrices = of_unit_size(matrix, options).expand({options.draws, n, n}).contiguous();
  // Across a rank cut the exact rule is a series. Take enough terms for it to converge.
  const Tensor exact = gradients(matrices, weights, options, Exact{.terms = kWholeSeries});
  require(exact.isfinite().all().item<bool>(),
          "M^(-1/2) is not defined at the smallest eigenvalue {:.3g}: a larger eps helps",
          result.values.back());
  const Tensor unit = exact.abs().max();  // of what is squared below
  const double exact_norm = (exact / unit).norm().item<double>();
  for (const SpectralRule& rule : compared_rules(options)) {
    const Tensor g = gradients(matrices.to(options.type), weights.to(options.type), options, rule)
                         .to(torch::kDouble);
    RuleError row{to_string(rule), g.isfinite().all().item<bool>(), 0, 0};
    if (row.finite) {
      row.error = ((g - exact) / unit).norm().item<double>() / exact_norm;
      row.cosine =
          ((g / unit * (exact / unit)).sum() / ((g / unit).norm() * exact_norm)).item<double>();
    }
    result.rules.push_back(row);
  }
  return result;
}

}  // namespace keel::lab::report
