#include <fmt/format.h>
#include <torch/types.h>

#include "keel/torch/threads.h"
#include "lab/cli/checkpoint.h"
#include "lab/cli/command.h"
#include "lab/cli/options.h"
#include "lab/report/put.h"
#include "lab/require.h"
#include "lab/storage/run_files.h"

namespace keel::cli {
namespace {

using lab::report::put;

/// The networks' largest difference on random images, relative to the largest output.
double difference(lab::ResNet& before, lab::ResNet& after, std::int64_t size) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(0);
  const std::int64_t side = size > 0 ? size : 32;  // 0 means the images' own size
  const auto images = torch::randn({16, 3, side, side});
  const auto expected = before->forward(images);
  return ((after->forward(images) - expected).abs().max() / expected.abs().max()).item<double>();
}

}  // namespace

int fold(const std::vector<std::string>& arguments) {
  std::string where, out;
  double tolerance = 1e-3;
  const auto app = make_app(
      "fold",
      "Writes a checkpoint in which each layer is folded into the convolution before it, so that "
      "it costs nothing at inference. `keel eval` reads the result.");
  app->add_option("RUN", where, "run folder, or one checkpoint's file")->required();
  app->add_option("--out", out, "folder for the new checkpoint")->required()->type_name("FOLDER");
  app->add_option("--tolerance", tolerance,
                  "largest allowed difference of the outputs, relative to the largest output")
      ->check(within({0.0, 1.0}))
      ->capture_default_str();
  if (const auto code = parse(*app, arguments)) return *code;
  keel::use_all_cores();
  lab::report::StatusLine line(stderr);
  lab::Checkpoint checkpoint = open_checkpoint(where, line);
  const auto& kind = checkpoint.options.model.norm.kind;
  require(kind != "none" && kind != "folded", "keel fold: expected a layer to fold, {} has {}",
          where, kind == "none" ? "none" : "one that is folded already");
  lab::ResNet before = lab::load_model(checkpoint), after = lab::load_model(checkpoint);
  after->eval();
  before->eval();
  after->fold_norms();
  const double off = difference(before, after, checkpoint.options.data.size);
  if (!(off <= tolerance)) {
    put(stderr, "keel fold: the outputs differ by {:.1e}, expected at most {:.1e}\n", off,
        tolerance);
    return kUnexpected;
  }
  checkpoint.options.model = after->options();
  // A run's own checkpoints would hide the new one from `keel eval`.
  if (lab::has_checkpoints(out) ||
      lab::has_checkpoints(std::filesystem::path(out) / lab::run_files::kCheckpoints))
    throw UsageError(
        fmt::format("keel fold: expected a folder without checkpoints as --out, {} has some", out));
  const auto file = lab::save_checkpoint(out, checkpoint, lab::state_of(*after), /*keep=*/1);
  const auto layers = after->tested().size();
  put(stdout, "{}: {}, outputs differ by {:.1e}\n",
      std::filesystem::path(file).replace_extension(".safetensors").string(),
      layers == 1 ? "the layer is folded into the convolution before it"
                  : fmt::format("{} layers are folded into the convolutions before them", layers),
      off);
  return kDone;
}

}  // namespace keel::cli
