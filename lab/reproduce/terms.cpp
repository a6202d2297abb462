// Table 1 and Figure 1: computes the powers of an eigenvalue ratio.

#include <fmt/format.h>
#include <torch/autograd.h>
#include <torch/types.h>

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

/// The series' relative error in the textbook gradient of one eigenvector of diag(1, ratio).
double series_error(double ratio, double terms) {
  if (terms < 1) return 1;
  const auto gradient = [&](const GradientRule& rule) {
    const auto matrix = torch::diag(torch::tensor({1.0, ratio}, torch::kDouble)).requires_grad_();
    const auto loss = keel::eigh(matrix, rule, {.descending = true}).eigenvectors[1][0];
    return torch::autograd::grad({loss}, {matrix})[0];
  };
  const auto truth = gradient(Analytic{});
  return ((gradient(Taylor{int(terms)}) - truth).norm() / truth.norm()).item<double>();
}

Measured measure_terms(const Measuring& what) {
  Json rows = Json::array();
  for (const Json& ratio : what.recipe.settings.at("ratios")) {
    const double q = ratio.get<double>(), terms = report::table1_terms(q);
    rows.push_back({{"ratio", q},
                    {"terms", terms},
                    {"error", rounded(series_error(q, terms), 4)},
                    {"error_before", rounded(series_error(q, terms - 1), 4)}});
  }
  return {.figures = {{"rows", rows}}};
}

Page terms_body(const Recipe& recipe, const Results& results) {
  report::Table table(
      {"ratio", "paper: K", "keel: K", "left out of the gradient with K terms", "with K - 1"});
  const Json& ratios = recipe.settings.at("ratios");
  for (std::size_t i = 0; i < ratios.size(); ++i) {
    std::vector<std::string> line{number(ratios[i].get<double>()),
                                  recipe.settings.at("paper").at(i).dump(), "not run", "", ""};
    if (!results.empty()) {
      const Json& row = results.measured.at("rows").at(i);
      line[2] = number(row.at("terms").get<double>());
      line[3] = report::percent(row.at("error").get<double>(), 3);
      line[4] = report::percent(row.at("error_before").get<double>(), 3);
    }
    table.add(line);
  }
  return {table.markdown() + "\n", {}};
}

Measured measure_surface(const Measuring& what) {
  const Json& settings = what.recipe.settings;
  const auto lines = settings.at("lines").get<std::size_t>();
  const double largest = settings.at("largest_k").get<double>();
  const double steep = settings.at("surface_k").get<double>();  // the last k of the surface
  Json heights = Json::array(), contours = Json::array();
  for (std::size_t i = 0; i < lines; ++i) {  // over k, starting at 1
    Json row = Json::array();
    const double k = 1 + (steep - 1) * double(i) / double(lines - 1);
    for (std::size_t j = 0; j < lines; ++j)
      row.push_back(rounded(std::pow(double(j) / double(lines - 1), k), 4));
    heights.push_back(row);
  }
  for (const Json& level : settings.at("levels")) {
    Json x = Json::array(), y = Json::array();
    for (double q = 0.05; q < 0.9999; q += q < 0.9 ? 0.05 : 0.01) {
      const double k = std::log(level.get<double>()) / std::log(q);
      if (k < 1 || k > largest) continue;
      x.push_back(rounded(q, 4));
      y.push_back(rounded(k, 4));
    }
    contours.push_back({{"level", level}, {"ratio", x}, {"k", y}});
  }
  return {.figures = {{"heights", heights}, {"contours", contours}}};
}

Page surface_body(const Recipe& recipe, const Results& results) {
  Page page;
  const auto heights = results.measured.at("heights").get<std::vector<std::vector<double>>>();
  report::Chart chart{.description = "contours of ratio^k", .x_label = "ratio of two eigenvalues"};
  std::vector<report::Key> keys;
  for (const Json& contour : results.measured.at("contours")) {
    const std::string label = fmt::format("ratio^k = {}", contour.at("level").dump());
    keys.push_back({label, int(keys.size())});
    chart.curves.push_back({label, keys.back().colour,
                            contour.at("ratio").get<std::vector<double>>(),
                            contour.at("k").get<std::vector<double>>()});
  }
  page.pictures["surface.svg"] = report::picture(
      {{"(a) ratio^k",
        report::surface_svg(heights,
                            fmt::format("k, 1 to {}", recipe.settings.at("surface_k").dump()),
                            "ratio, 0 to 1", "ratio^k over ratio and k")},
       {"(b) k at which ratio^k reaches a level", report::svg(chart)}},
      keys);
  page.markdown += "![The powers of a ratio](surface.svg)\n\n";
  return page;
}

}  // namespace

const Kind kTerms{measure_terms, terms_body};
const Kind kSurface{measure_surface, surface_body};

}  // namespace keel::lab::reproduce
