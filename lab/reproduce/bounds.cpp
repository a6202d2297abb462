// The largest dL/dM each rule can give, for a unit dL/dV and for a unit dL/dS, S = M^(-1/2).
//
// In the eigenbasis a rule works on pairs: W_ij = a_ij B_ji + b_ij B_ij for i < j, and dL/dM has the norm
// sqrt(2) |W_ij|. Two backward passes, one with all B_ji = 1 and one with all B_ij = 1, give every a_ij and b_ij. The
// largest gradient is sqrt(2) times the largest sqrt(a_ij^2 + b_ij^2). In the same way, one pass gives every factor of
// dL/dS.

#include <fmt/format.h>
#include <torch/autograd.h>
#include <torch/types.h>

#include <cmath>
#include <variant>

#include "keel/torch/keel.h"
#include "lab/report/table.h"
#include "lab/reproduce/measure.h"

namespace keel::lab::reproduce {
namespace {

using torch::Tensor;

constexpr double kInfinite = INFINITY;

/// The largest magnitude, or infinity if any factor is not finite.
double largest(const Tensor& factors) {
  if (!factors.isfinite().all().item<bool>()) return kInfinite;
  return factors.abs().max().item<double>();
}

/// W of one backward pass with dL/dV = V B.
Tensor pair_factors(const Tensor& matrix, const GradientRule& rule, const Tensor& b) {
  const Tensor m = matrix.detach().clone().requires_grad_();
  const auto [values, vectors] = keel::eigh(m, rule, {.descending = true});
  const Tensor v = vectors.detach();
  const Tensor g = torch::autograd::grad({vectors}, {m}, {v.matmul(b)})[0];
  return v.t().matmul(g).matmul(v).to(torch::kDouble);
}

double largest_from_vectors(const Tensor& matrix, const GradientRule& rule) {
  const Tensor ones = torch::ones_like(matrix);
  const Tensor a = pair_factors(matrix, rule, ones.tril(-1)).triu(1);
  const Tensor b = pair_factors(matrix, rule, ones.triu(1)).triu(1);
  return std::sqrt(2.0) * largest((a * a + b * b).sqrt());
}

double largest_from_function(const Tensor& matrix, const SpectralRule& rule) {
  const Tensor m = matrix.detach().clone().requires_grad_();
  const auto result = keel::spectral(m, {}, FullRank{}, rule).result;
  const Tensor v = keel::eigh(matrix, Masked{}, {.descending = true}).eigenvectors.detach();
  const Tensor c = v.matmul(torch::ones_like(matrix)).matmul(v.t());
  const Tensor g = torch::autograd::grad({result}, {m}, {c})[0];
  return largest(v.t().matmul(g).matmul(v).to(torch::kDouble));
}

struct Spectrum {
  std::string name;
  std::vector<Tensor> matrices;
};

/// A matrix with the eigenvalues `values`: diagonal, or rotated at random and so rounded.
Tensor matrix_of(const Tensor& values, bool rotated) {
  const Tensor diagonal = torch::diag(values);
  if (!rotated) return diagonal;
  auto generator = at::detail::createCPUGenerator(1);
  const auto n = values.size(0);
  const Tensor q = std::get<0>(torch::linalg_qr(torch::randn({n, n}, generator, torch::kDouble)));
  return q.matmul(diagonal).matmul(q.t());
}

/// Adversarial spectra: eigenvalues that repeat, almost repeat, or all equal eps.
std::vector<Spectrum> adversarial(std::int64_t n, double eps) {
  const Tensor steps = torch::arange(n, torch::kDouble);
  const Tensor apart = torch::pow(0.9, steps) + eps;
  Tensor pair = apart.clone(), half = apart.clone();
  pair[1] = pair[0];
  half.narrow(0, n / 2, n - n / 2).fill_(eps);
  const auto near = [&](double gap) {
    Tensor values = apart.clone();
    values[1] = values[0] * (1 - gap);
    return values;
  };
  const Tensor ones = torch::ones(n, torch::kDouble);
  std::vector<Spectrum> all = {{"ratios of 0.9", {matrix_of(apart, true)}},
                               {"one pair apart by 1e-3", {matrix_of(near(1e-3), true)}},
                               {"one pair apart by 1e-6", {matrix_of(near(1e-6), true)}},
                               {"one pair equal, to the last bit", {matrix_of(pair, false)}},
                               {"one pair equal, then rounded", {matrix_of(pair, true)}},
                               {"half of them at eps", {matrix_of(half, false)}},
                               {"half of them at eps, then rounded", {matrix_of(half, true)}},
                               {"all equal to 1", {matrix_of(ones, false)}},
                               {"all equal to eps", {matrix_of(eps * ones, false)}},
                               {"all equal to eps, then rounded", {matrix_of(eps * ones, true)}}};
  return all;
}

struct Bounded {
  std::string name;
  SpectralRule rule;
  double terms = 0;
};

std::vector<Bounded> rules_of(const Json& settings) {
  const int k = settings.at("terms").get<int>();
  return {{"exact", Exact{}, 0},
          {"power_iteration", PowerIteration{k}, double(k)},
          {"taylor", Taylor{k}, double(k)},
          {"lorentzian", Lorentzian{}, 0},
          {"masked", Masked{}, 0},
          {"analytic", Analytic{}, 0}};
}

double from_vectors(const Tensor& matrix, const SpectralRule& rule) {
  return std::visit(
      [&](const auto& one) {
        if constexpr (std::is_same_v<std::decay_t<decltype(one)>, Exact>)
          return kNotDone;  // it only applies to functions of the matrix
        else
          return largest_from_vectors(matrix, one);
      },
      rule);
}

/// "inf" for infinity, null for a missing value.
Json figure(double value) { return std::isinf(value) ? Json("inf") : rounded(value, 4); }

void add_rows(Json& rows, const Spectrum& spectrum, const Json& settings, double eps) {
  const auto n = spectrum.matrices.front().size(0);
  for (const Bounded& rule : rules_of(settings)) {
    double vectors = kNotDone, function = kNotDone;
    for (const Tensor& matrix : spectrum.matrices) {
      const Tensor single = matrix.to(torch::kFloat);  // the type layers compute in
      vectors = std::fmax(vectors, from_vectors(single, rule.rule));
      function = std::fmax(function, largest_from_function(single, rule.rule));
    }
    rows.push_back({{"spectrum", spectrum.name},
                    {"n", n},
                    {"matrices", spectrum.matrices.size()},
                    {"rule", rule.name},
                    {"vectors", figure(vectors)},
                    {"function", figure(function)},
                    {"bound", rule.terms > 0 ? figure(double(n) * rule.terms / eps) : Json()}});
  }
}

std::string figure_text(const Json& value) {
  return value.is_string() ? "not finite" : fmt::format("{:.2e}", value.get<double>());
}

std::string table_text(const Json& rows, const std::string& what) {
  report::Table table({"spectrum", "n"});
  const auto add = [&](const Json& row, const std::string& column, const std::string& figure) {
    if (row.at(figure).is_null()) return;
    table.set({row.at("spectrum").get<std::string>(), row.at("n").dump()}, column,
              figure_text(row.at(figure)));
  };
  for (const Json& row : rows) add(row, "`" + row.at("rule").get<std::string>() + "`", what);
  if (what == "vectors")
    for (const Json& row : rows) add(row, "the paper's bound n K / eps", "bound");
  return table.markdown();
}

Measured measure_bounds(const Measuring& what) {
  const Json& settings = what.recipe.settings;
  const double eps = what.options.model.norm.eps;
  const Snapshots found = training_covariances(what);
  Json rows = Json::array();
  for (const Json& size : settings.at("sizes")) {
    Spectrum trained{"of the training", {}};
    for (const Snapshot& snapshot : found.snapshots) {
      const auto some = blocks(snapshot, size.get<std::int64_t>(), eps);
      trained.matrices.insert(trained.matrices.end(), some.begin(), some.end());
    }
    if (trained.matrices.empty()) continue;
    what.say(
        fmt::format("d = {}: {} matrices of the training", size.dump(), trained.matrices.size()));
    add_rows(rows, trained, settings, eps);
  }
  for (const Spectrum& spectrum : adversarial(settings.at("n").get<std::int64_t>(), eps))
    add_rows(rows, spectrum, settings, eps);
  return {.figures = {{"rows", rows}}, .data = found.data, .device = found.device};
}

Page bounds_body(const Recipe&, const Results& results) {
  Page page;
  const Json& rows = results.measured.at("rows");
  page.markdown +=
      "The largest norm of dL/dM for a dL/dV of norm 1 (all eigenvectors together):\n\n" +
      table_text(rows, "vectors") +
      "\nThe largest norm of dL/dM for a dL/dS of norm 1, S = M^(-1/2), at full rank:\n\n" +
      table_text(rows, "function") + "\n";
  return page;
}

}  // namespace

const Kind kBounds{measure_bounds, bounds_body};

}  // namespace keel::lab::reproduce
