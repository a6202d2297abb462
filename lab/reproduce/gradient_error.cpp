// Compares each rule's gradient of <W, M^(-1/2)> with the exact one, on covariances of a training.

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "keel/torch/keel.h"
#include "lab/report/picture.h"
#include "lab/report/spectrum_study.h"
#include "lab/report/table.h"
#include "lab/report/wording.h"
#include "lab/reproduce/measure.h"

namespace keel::lab::reproduce {
namespace {

using report::number;
using report::RuleError;
using report::SpectrumStudy;

struct Compared {
  std::string name;
  std::int64_t terms = 0;  ///< 0 for rules without terms
  SpectralRule rule;
};

std::vector<Compared> series_rules(const Json& terms) {
  std::vector<Compared> rules;
  for (const Json& one : terms) {
    const int k = one.get<int>();
    rules.push_back({"power_iteration", k, PowerIteration{k}});
    rules.push_back({"taylor", k, Taylor{k}});
  }
  return rules;
}

std::vector<Compared> other_rules() {
  return {{"analytic", 0, Analytic{}}, {"masked", 0, Masked{}}, {"lorentzian", 0, Lorentzian{}}};
}

/// Statistics over all matrices of one size.
struct Sum {
  std::int64_t count = 0, not_finite = 0;
  double error = 0, worst = 0, cosine = 0, least_cosine = 1;

  void add(const RuleError& one) {
    ++count;
    if (!one.finite) {
      ++not_finite;
      return;
    }
    error += one.error;
    worst = std::max(worst, one.error);
    cosine += one.cosine;
    least_cosine = std::min(least_cosine, one.cosine);
  }
  Json row(std::int64_t d, const Compared& rule, const std::string& how) const {
    const double finite = double(count - not_finite);
    return {{"how", how},
            {"d", d},
            {"rule", rule.name},
            {"terms", rule.terms},
            {"matrices", count},
            {"not_finite", not_finite},
            {"error", rounded(error / finite, 4)},
            {"worst", rounded(finite > 0 ? worst : NAN, 4)},
            {"cosine", rounded(cosine / finite, 6)},
            {"least_cosine", rounded(finite > 0 ? least_cosine : NAN, 6)}};
  }
};

/// A way of computing the gradients, and its name in the results.
struct How {
  const char* name;
  torch::Dtype type;
  RankPolicy policy;
};
const How kDouble{"float64", torch::kDouble, FullRank{}};
const How kSingle{"float32", torch::kFloat, FullRank{}};
const How kCut{"float64, Algorithm 1", torch::kDouble, Algorithm1{.literal = true}};

/// The errors of `rules` over the matrices.
void add_errors(Json& rows, std::int64_t d, const std::vector<torch::Tensor>& matrices,
                const std::vector<Compared>& rules, const How& how) {
  report::StudyOptions options;
  options.type = how.type;
  options.policy = how.policy;
  for (const Compared& one : rules) options.rules.push_back(one.rule);
  std::vector<Sum> sums(rules.size());
  for (const auto& matrix : matrices) {
    const SpectrumStudy study = report::study(matrix, options);
    for (std::size_t i = 0; i < rules.size(); ++i) sums[i].add(study.rules[i]);
  }
  for (std::size_t i = 0; i < rules.size(); ++i) rows.push_back(sums[i].row(d, rules[i], how.name));
}

/// Shares of the variance that PCA denoising keeps in the paper.
constexpr std::array kShares = {0.85, 0.99, 0.995, 0.999};

/// How many eigenvectors hold a share of the variance once each channel is divided by its deviation, as PCA denoising
/// does.
std::int64_t needed_for(double share, const torch::Tensor& covariance) {
  const torch::Tensor deviation = covariance.diagonal().sqrt();
  const torch::Tensor correlation = covariance / torch::outer(deviation, deviation);
  return keel::spectral(correlation, {SpectralFunction::Kind::one}, LeadingEnergy{share})
      .kept.item<std::int64_t>();
}

Json spectrum_row(std::int64_t step, std::int64_t d, const std::vector<torch::Tensor>& matrices) {
  double ratios = 0, gap = INFINITY, condition = 0, close = 0, rank = 0;
  std::int64_t pairs = 0;
  std::array<std::int64_t, kShares.size()> needed{};
  for (const auto& matrix : matrices) {
    report::StudyOptions none;
    none.rules = {Exact{}};
    none.draws = 1;
    const SpectrumStudy study = report::study(matrix, none);
    for (const auto& pair : study.neighbours) {
      ++pairs;
      ratios += pair.ratio();
      close += pair.ratio() > 0.945;
      gap = std::min(gap, pair.gap() / study.values.front());
    }
    condition = std::max(condition, study.values.front() / study.values.back());
    rank += double(study.rank) / double(matrices.size());
    for (std::size_t i = 0; i < needed.size(); ++i)
      needed[i] = std::max(needed[i], needed_for(kShares[i], matrix));
  }
  return {{"step", step},
          {"d", d},
          {"mean_ratio", rounded(ratios / double(pairs), 4)},
          {"close", rounded(close / double(pairs), 3)},
          {"smallest_gap", rounded(gap, 3)},
          {"condition", rounded(condition, 3)},
          {"rank", rounded(rank, 3)},
          {"for_85", needed[0]},
          {"for_99", needed[1]},
          {"for_99_5", needed[2]},
          {"for_99_9", needed[3]}};
}

std::string error_text(const Json& row) {
  const auto bad = row.at("not_finite").get<std::int64_t>();
  if (bad == row.at("matrices").get<std::int64_t>()) return "not finite";
  const std::string text = fmt::format("{} ({:.3f})", number(number_or_nan(row.at("error"))),
                                       number_or_nan(row.at("cosine")));
  return bad ? fmt::format("{}; {} not finite", text, bad) : text;
}

std::string rule_text(const Json& row) {
  const auto terms = row.at("terms").get<std::int64_t>();
  const std::string name = row.at("rule").get<std::string>();
  return terms ? fmt::format("`{}`, K = {}", name, terms) : fmt::format("`{}`", name);
}

/// One row per rule, one column per d.
std::string errors_table(const Json& measured, const std::string& how) {
  report::Table table({how + ": error (cosine)"});
  for (const Json& row : measured.at("errors"))
    if (row.at("how") == how)
      table.set({rule_text(row)}, "d = " + row.at("d").dump(), error_text(row));
  return table.markdown();
}

std::string spectra_table(const Json& measured) {
  report::Table table({"step", "d", "mean ratio of neighbours", "pairs above 0.945",
                       "smallest gap / largest eigenvalue", "largest condition",
                       "kept by Algorithm 1", "needed for 85 / 99 / 99.5 / 99.9 %"});
  for (const Json& row : measured.at("spectra"))
    table.add({row.at("step").dump(), row.at("d").dump(),
               fmt::format("{:.3f}", row.at("mean_ratio").get<double>()),
               report::percent(row.at("close").get<double>(), 0),
               fmt::format("{:.1e}", row.at("smallest_gap").get<double>()),
               number(row.at("condition").get<double>()), number(row.at("rank").get<double>()),
               fmt::format("{} / {} / {} / {}", row.at("for_85").dump(), row.at("for_99").dump(),
                           row.at("for_99_5").dump(), row.at("for_99_9").dump())});
  return table.markdown();
}

report::Chart chart_of(const Json& measured, const char* rule, const char* how) {
  report::Chart chart{.description = fmt::format("error of {}, {}", rule, how),
                      .x_label = "K",
                      .y_axis = report::Axis::Kind::logarithmic,
                      .points = true};
  for (const Json& row : measured.at("errors")) {
    if (row.at("rule") != rule || row.at("how") != how) continue;
    const std::string label = fmt::format("d = {}", row.at("d").dump());
    if (chart.curves.empty() || chart.curves.back().label != label) chart.curves.push_back({label});
    chart.curves.back().x.push_back(row.at("terms").get<double>());
    chart.curves.back().y.push_back(number_or_nan(row.at("error")));
  }
  return chart;
}

Measured measure_gradient_error(const Measuring& what) {
  const Json& settings = what.recipe.settings;
  const Snapshots found = training_covariances(what);
  const auto series = series_rules(settings.at("terms"));
  const auto others = other_rules();
  const double eps = what.options.model.norm.eps;
  Json spectra = Json::array(), errors = Json::array();
  for (const Json& size : settings.at("sizes")) {
    const auto d = size.get<std::int64_t>();
    std::vector<torch::Tensor> matrices;
    for (const Snapshot& snapshot : found.snapshots) {
      const auto some = blocks(snapshot, d, eps);
      if (!some.empty()) spectra.push_back(spectrum_row(snapshot.step, d, some));
      matrices.insert(matrices.end(), some.begin(), some.end());
    }
    if (matrices.empty()) continue;
    what.say(fmt::format("d = {}: {} matrices", d, matrices.size()));
    std::vector<Compared> rules = series, single = others, cut = series;
    single.insert(single.begin(), {"exact", 0, Exact{}});
    single.push_back({"power_iteration", 19, PowerIteration{19}});
    cut.push_back({"exact", 19, Exact{19}});
    cut.insert(cut.end(), others.begin(), others.end());
    rules.insert(rules.end(), others.begin(), others.end());
    add_errors(errors, d, matrices, rules, kDouble);
    add_errors(errors, d, matrices, single, kSingle);
    add_errors(errors, d, matrices, cut, kCut);
  }
  return {.figures = {{"spectra", spectra}, {"errors", errors}},
          .data = found.data,
          .device = found.device};
}

Page gradient_error_body(const Recipe&, const Results& results) {
  Page page;
  const Json& measured = results.measured;
  page.pictures["error.svg"] = report::picture(
      {{"Power iteration, full rank", chart_of(measured, "power_iteration", kDouble.name)},
       {"Power iteration, Algorithm 1's rank", chart_of(measured, "power_iteration", kCut.name)},
       {"Taylor, full rank", chart_of(measured, "taylor", kDouble.name)},
       {"Taylor, Algorithm 1's rank", chart_of(measured, "taylor", kCut.name)}});
  page.markdown += "![Relative error against K](error.svg)\n\n## At full rank\n\n" +
                   errors_table(measured, kDouble.name) + "\n" +
                   errors_table(measured, kSingle.name) +
                   "\n## At the rank that Algorithm 1 keeps, as the layer does\n\n" +
                   errors_table(measured, kCut.name) +
                   "\n## The spectra they were measured on\n\n" + spectra_table(measured) + "\n";
  return page;
}

}  // namespace

const Kind kGradientError{measure_gradient_error, gradient_error_body};

}  // namespace keel::lab::reproduce
