#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "keel/torch/threads.h"
#include "lab/cli/command.h"
#include "lab/cli/inspected_matrix.h"
#include "lab/cli/options.h"
#include "lab/report/put.h"
#include "lab/report/spectrum_study.h"
#include "lab/report/wording.h"
#include "lab/require.h"

namespace keel::cli {
namespace {

using lab::report::put;

using lab::report::Neighbours;
using lab::report::number;
using lab::report::SpectrumStudy;
using lab::report::table1_terms;

constexpr std::size_t kPairsShown = 12;

std::string terms_text(double terms) {
  return std::isfinite(terms) ? fmt::format("{:.0f}", terms) : "no number";
}

void print(const InspectedMatrix& source, const SpectrumStudy& s, const std::string& function) {
  const double largest = s.values.front(), smallest = s.values.back();
  put(stdout, "{}\n", source.description);
  put(stdout, "n = {}, eigenvalues {} ... {}, condition {}\n", s.values.size(), number(largest),
      number(smallest), number(largest / smallest));
  put(stdout, "Algorithm 1 keeps {}; 99 % of the energy is in {}\n", s.rank, s.energy_count);
  if (s.neighbours.empty()) return;

  auto pairs = s.neighbours;
  std::ranges::stable_sort(pairs, std::greater(), &Neighbours::ratio);
  const auto equal = std::ranges::count(pairs, 0, &Neighbours::gap);
  if (equal > 0) put(stdout, "{} neighbours are equal to the last bit\n", equal);
  pairs.resize(std::min(pairs.size(), kPairsShown));
  put(stdout, "\nclosest neighbours\n{:>9} {:>12} {:>12} {:>12} {:>12} {:>10}\n", "pair", "larger",
      "smaller", "gap", "ratio", "Table 1: K");
  for (const Neighbours& pair : pairs) {
    put(stdout, "{:>9} {:>12} {:>12} {:>12} {:>12} {:>10}\n",
        fmt::format("{}, {}", pair.index + 1, pair.index + 2), number(pair.larger),
        number(pair.smaller), number(pair.gap()), fmt::format("{:.6f}", pair.ratio()),
        terms_text(table1_terms(pair.ratio())));
  }
  put(stdout,
      "\ngradient of <W, f(M)>, f = {}, against the exact one in float64\n{:<34} {:>14} {:>10}\n",
      function, "rule", "relative error", "cosine");
  for (const auto& rule : s.rules) {
    put(stdout, "{:<34} {:>14} {:>10}\n", rule.rule,
        rule.finite ? fmt::format("{:.2e}", rule.error) : "not finite",
        rule.finite ? fmt::format("{:.6f}", rule.cosine) : "-");
  }
}

nlohmann::json to_json(const InspectedMatrix& source, const SpectrumStudy& s,
                       const std::string& function) {
  nlohmann::json pairs = nlohmann::json::array(), rules = nlohmann::json::array();
  for (const auto& pair : s.neighbours) {
    pairs.push_back({{"index", pair.index},
                     {"gap", pair.gap()},
                     {"ratio", pair.ratio()},
                     {"terms", table1_terms(pair.ratio())}});
  }
  for (const auto& rule : s.rules) {
    const auto figure = [&](double value) {
      return rule.finite ? nlohmann::json(value) : nlohmann::json();
    };
    rules.push_back({{"rule", rule.rule},
                     {"finite", rule.finite},
                     {"error", figure(rule.error)},
                     {"cosine", figure(rule.cosine)}});
  }
  return {{"source", source.description},  {"values", s.values},
          {"neighbours", pairs},           {"rank", s.rank},
          {"function", function},          {"rules", rules},
          {"energy_count", s.energy_count}};
}

}  // namespace

int inspect(const std::vector<std::string>& arguments) {
  std::string where, function = "inv_sqrt";
  InspectedMatrixOptions from;
  lab::report::StudyOptions options;
  bool json = false;
  const auto app = make_app(
      "inspect",
      "The spectrum of a run's layer, of a checkpoint's, or of a matrix in a .npy file: gaps, "
      "ratios, "
      "the number of terms that the paper's Table 1 asks for, and each gradient rule's error.");
  app->add_option("RUN", where,
                  "run folder (the layer's covariance at its last step), checkpoint file (computed "
                  "from images), or .npy file with (n, n) or (groups, n, n) numbers")
      ->required();
  app->add_option("--layer", from.layer,
                  "which of the layers, by its name in the network [the first one under test]")
      ->type_name("NAME");
  app->add_option("--group", from.group, "which group of channels, from 0")
      ->check(within({0, 1000000}))
      ->capture_default_str();
  app->add_option("--eps", from.eps, "added to the diagonal [the layer's; 0 for .npy]")
      ->check(within({0, 1e6}));
  app->add_option("--images", from.images, "checkpoint: training images to compute from")
      ->check(within({1, 1000000}))
      ->capture_default_str();
  app->add_option("--function", function, "f of the loss <W, f(M)>")
      ->check(CLI::IsMember({"inv_sqrt", "sqrt", "inv", "log", "exp"}))
      ->capture_default_str();
  app->add_option("--terms", options.terms, "terms of the series [each rule's own]")
      ->check(within({1, 1000000}));
  app->add_option("--draws", options.draws, "number of random W to average the errors over")
      ->check(within({1, 1000}))
      ->capture_default_str();
  app->add_option("--seed", options.seed, "seed of W")->capture_default_str();
  app->add_flag("--json", json, "print JSON, with all neighbours");
  if (const auto code = parse(*app, arguments)) return *code;
  keel::use_all_cores();
  options.function = keel::spectral_function(function);
  const InspectedMatrix source = inspected_matrix(where, from);
  require(source.matrix.isfinite().all().item<bool>(),
          "expected finite numbers, got NaN or infinity ({})", source.description);
  const SpectrumStudy result = lab::report::study(source.matrix, options);
  if (json)
    put(stdout, "{}\n",
        to_json(source, result, function)
            .dump(2, ' ', true, nlohmann::json::error_handler_t::replace));
  else
    print(source, result, function);
  return kDone;
}

}  // namespace keel::cli
