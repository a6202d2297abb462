#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "keel/torch/threads.h"
#include "lab/cli/command.h"
#include "lab/cli/options.h"
#include "lab/report/npy.h"
#include "lab/report/run_folder.h"
#include "lab/report/spectrum_study.h"
#include "lab/report/table.h"
#include "lab/report/wording.h"
#include "lab/require.h"
#include "lab/storage/own_files.h"

namespace keel::cli {
namespace {

using torch::Tensor;

struct InspectedMatrixOptions {
  std::string layer;  ///< its name in the network; empty means the first one under test
  std::int64_t group = 0;
  std::optional<double> eps;  ///< empty means the layer's own, or 0 for .npy files
};

struct InspectedMatrix {
  torch::Tensor matrix;  ///< (n, n) float64: the matrix that the layer decomposes
  std::string description;
};

/// The layer's M: its covariance, standardised for PCA, plus eps on the diagonal.
Tensor shifted(Tensor covariance, bool standardise, double eps) {
  if (standardise) {
    const Tensor d = (covariance.diagonal() + eps).rsqrt();
    covariance = d.unsqueeze(1) * covariance * d.unsqueeze(0);
  }
  return covariance + eps * torch::eye(covariance.size(0), torch::kDouble);
}

void require_group(std::int64_t group, std::int64_t groups, const std::string& where) {
  if (group >= groups)
    throw UsageError(
        fmt::format("expected --group from 0 to {}, got {} ({})", groups - 1, group, where));
}

std::string of_group(std::int64_t group, std::int64_t groups) {
  return groups > 1 ? fmt::format(", group {} of {}", group, groups) : "";
}

InspectedMatrix from_npy(const std::filesystem::path& file, const InspectedMatrixOptions& options) {
  Tensor all = lab::report::read_npy(file);
  if (all.dim() == 2) all = all.unsqueeze(0);
  require(all.dim() == 3 && all.size(1) == all.size(2), "expected (n, n) or (groups, n, n) in {}",
          file.string());
  require_group(options.group, all.size(0), file.string());
  const double eps = options.eps.value_or(0);
  return {shifted(all[options.group], false, eps),
          fmt::format("{}{}, eps {:g}", file.string(), of_group(options.group, all.size(0)), eps)};
}

/// The requested layer, or the first one.
const lab::report::LayerSpectrum& chosen(const lab::report::Run& run, const std::string& name) {
  std::vector<std::string> names;
  for (const auto& layer : run.spectra) {
    if (name.empty() || layer.name == name) return layer;
    names.push_back(layer.name);
  }
  throw UsageError(fmt::format("expected --layer to be one of {}, got '{}' ({})",
                               fmt::join(names, ", "), name, run.folder.string()));
}

InspectedMatrix from_run(const std::filesystem::path& folder,
                         const InspectedMatrixOptions& options) {
  const std::string name = folder.string();
  const auto run = lab::report::read_run(folder);
  require(!run.spectra.empty(), "the layer of {} has no spectrum", name);
  const auto& layer = chosen(run, options.layer);
  const auto groups = std::int64_t(layer.groups.size());
  require_group(options.group, groups, name);
  const auto& rows = layer.groups[std::size_t(options.group)].covariance;
  const auto n = std::int64_t(rows.size());
  require(n > 0, "{} has no covariance of {}, group {}",
          (folder / lab::run_files::kSpectrum).string(), layer.name, options.group);
  Tensor covariance = torch::empty({n, n}, torch::kDouble);
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j) covariance[i][j] = rows[std::size_t(i)][std::size_t(j)];
  const auto recorded = run.setting("eps");
  const auto given = recorded.empty() ? 1e-4 : lab::number_in<double>(recorded);
  require(given.has_value(), "expected eps in {} to be a number, got '{}'",
          (folder / lab::run_files::kConfig).string(), recorded);
  const double eps = options.eps.value_or(*given);
  return {shifted(covariance, run.setting("norm") == "pca", eps),
          fmt::format("{}: {}'s matrix at its last step{}, eps {:g}", name, layer.name,
                      of_group(options.group, groups), eps)};
}

InspectedMatrix inspected_matrix(const std::filesystem::path& where,
                                 const InspectedMatrixOptions& options) {
  require(std::filesystem::exists(where), "{} is not there", where.string());
  return where.extension() == ".npy" ? from_npy(where, options) : from_run(where, options);
}

using lab::report::Neighbours;
using lab::report::number;
using lab::report::put;
using lab::report::SpectrumStudy;
using lab::report::Table;
using lab::report::table1_terms;

constexpr std::size_t kPairsShown = 12;

std::string terms_text(double terms) {
  return std::isfinite(terms) ? fmt::format("{:.0f}", terms) : "no number";
}

void print(const InspectedMatrix& source, const SpectrumStudy& s) {
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
  Table closest({"pair", "larger", "smaller", "gap", "ratio", "Table 1: K"}, 0);
  for (const Neighbours& pair : pairs)
    closest.add({fmt::format("{}, {}", pair.index + 1, pair.index + 2), number(pair.larger),
                 number(pair.smaller), number(pair.gap()), fmt::format("{:.6f}", pair.ratio()),
                 terms_text(table1_terms(pair.ratio()))});
  Table rules({"rule", "relative error", "cosine"});
  for (const auto& rule : s.rules)
    rules.add({rule.rule, rule.finite ? fmt::format("{:.2e}", rule.error) : "not finite",
               rule.finite ? fmt::format("{:.6f}", rule.cosine) : "-"});
  put(stdout,
      "\nclosest neighbours\n{}\ngradient of <W, M^(-1/2)>, against the exact one in float64\n{}",
      closest.aligned(), rules.aligned());
}

}  // namespace

int inspect(const std::vector<std::string>& arguments) {
  std::string where;
  InspectedMatrixOptions from;
  lab::report::StudyOptions options;
  const auto app =
      make_app("inspect",
               "The spectrum of a run's layer, or of a matrix in a .npy file: gaps, "
               "ratios, the number of terms that the paper's Table 1 asks for, and each "
               "gradient rule's error.");
  app->add_option(
         "RUN", where,
         "run folder (the layer's covariance at its last step), or .npy file with (n, n) or "
         "(groups, n, n) numbers")
      ->required();
  app->add_option("--layer", from.layer,
                  "which of the layers, by its name in the network [the first one under test]")
      ->type_name("NAME");
  app->add_option("--group", from.group, "which group of channels, from 0")
      ->check(within({0, 1000000}))
      ->capture_default_str();
  app->add_option("--eps", from.eps, "added to the diagonal [the layer's; 0 for .npy]")
      ->check(within({0, 1e6}));
  app->add_option("--terms", options.terms, "terms of the series [each rule's own]")
      ->check(within({1, 1000000}));
  if (const auto code = parse(*app, arguments)) return *code;
  keel::use_all_cores();
  const InspectedMatrix source = inspected_matrix(where, from);
  const SpectrumStudy result = [&] {
    try {
      return lab::report::study(source.matrix, options);
    } catch (const Error& error) {
      throw Error(fmt::format("{} ({})", error.what(), source.description));
    }
  }();
  print(source, result);
  return kDone;
}

}  // namespace keel::cli
