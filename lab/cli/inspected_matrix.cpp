#include "lab/cli/inspected_matrix.h"
#include "lab/storage/run_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/modules/conv.h>

#include "keel/torch/moments.h"
#include "lab/cli/checkpoint.h"
#include "lab/cli/command.h"
#include "lab/data/augment.h"
#include "lab/number.h"
#include "lab/report/npy.h"
#include "lab/report/run_folder.h"
#include "lab/require.h"

namespace keel::cli {
namespace {

using torch::Tensor;

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
template <typename Layers>
const auto& chosen(const Layers& layers, const std::string& name, const std::string& where) {
  std::vector<std::string> names;
  for (const auto& layer : layers) {
    if (name.empty() || layer.name == name) return layer;
    names.push_back(layer.name);
  }
  throw UsageError(fmt::format("expected --layer to be one of {}, got '{}' ({})",
                               fmt::join(names, ", "), name, where));
}

InspectedMatrix from_run(const std::filesystem::path& folder,
                         const InspectedMatrixOptions& options) {
  const std::string name = folder.string();
  const auto run = lab::report::read_run(folder);
  require(!run.spectra.empty(),
          "the layer of {} has no spectrum; its checkpoint's "
          "file gives the covariance of its input",
          name);
  const auto& layer = chosen(run.spectra, options.layer, name);
  const auto groups = std::int64_t(layer.groups.size());
  require_group(options.group, groups, name);
  const auto& rows = layer.groups[std::size_t(options.group)].covariance;
  const auto n = std::int64_t(rows.size());
  require(n > 0, "{} has no covariance of {}, group {}; a checkpoint's file gives it",
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

/// The input of the norm with that name.
Tensor input_of(lab::ResNet& model, const std::string& norm, const Tensor& images) {
  struct Found {
    Tensor input;
  };
  const lab::Watch watch = [&](const std::string& layer, const Tensor& input, const Tensor&) {
    if (layer == norm) throw Found{input};  // skips the rest of the network
  };
  try {
    model->forward(images, &watch);
  } catch (const Found& found) {
    return found.input;
  }
  throw Error("there is no layer called " + norm);
}

InspectedMatrix from_checkpoint(const std::filesystem::path& file,
                                const InspectedMatrixOptions& options) {
  lab::report::StatusLine line(stderr);
  const lab::Checkpoint checkpoint = open_checkpoint(file.string(), line);
  const auto& norm = checkpoint.options.model.norm;
  const lab::DataSet data = lab::load(checkpoint.options.data, lab::report::shown_on(line));
  line.clear();
  const torch::NoGradGuard no_grad;
  lab::ResNet model = lab::load_model(checkpoint);
  model->eval();
  const auto count = std::min(options.images, data.train.count());
  const Tensor input =
      lab::normalise(data.train.pixels.narrow(0, 0, count), lab::augment_options(data, 0));
  const auto sites = lab::tested_sites(checkpoint.options.model);
  const std::string name = chosen(sites, options.layer, file.string()).name;
  const Tensor activations = input_of(model, name, input);
  const auto channels = activations.size(1);
  const auto groups = norm.group_size > 0 ? channels / norm.group_size : 1;
  require_group(options.group, groups, file.string());
  const double eps = options.eps.value_or(norm.eps);
  const Tensor covariance = keel::moments(activations.to(torch::kDouble), groups).covariance;
  return {shifted(covariance[options.group], norm.kind == "pca", eps),
          fmt::format("{}: step {}, {}'s matrix over {} images of {}{}, eps {:g}", file.string(),
                      checkpoint.position.step, name, count, data.name,
                      of_group(options.group, groups), eps)};
}

}  // namespace

InspectedMatrix inspected_matrix(const std::filesystem::path& where,
                                 const InspectedMatrixOptions& options) {
  require(std::filesystem::exists(where), "{} is not there", where.string());
  if (where.extension() == ".npy") return from_npy(where, options);
  if (std::filesystem::exists(where / lab::run_files::kSpectrum)) return from_run(where, options);
  return from_checkpoint(where, options);
}

}  // namespace keel::cli
