#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "keel/torch/threads.h"
#include "lab/cli/command.h"
#include "lab/cli/options.h"
#include "lab/report/wording.h"
#include "lab/train/trainer.h"

namespace keel::cli {
namespace {

using lab::report::put;

using lab::report::percent;

}  // namespace

int evaluate(const std::vector<std::string>& arguments) {
  std::string where, split = "test";
  bool json = false;
  std::int64_t recalibrate = 0;
  lab::TrainOptions given;
  const auto app = make_app(
      "eval", "Test error of a checkpoint. Data and machine options default to the run's.");
  app->add_option("RUN", where, "run folder, or one checkpoint's file")->required();
  app->add_option("--split", split, "which images")
      ->check(CLI::IsMember({"test", "train"}))
      ->capture_default_str();
  app->add_option("--recalibrate", recalibrate,
                  "evaluate a second time, with running statistics recomputed from this many "
                  "training batches")
      ->check(within({1, 1e9}));
  app->add_flag("--json", json, "print JSON");
  using lab::About;
  add_options(*app, given,
              lab::options_about({About::data, About::place, About::arithmetic, About::machine}),
              "the run's");
  if (const auto code = parse(*app, arguments)) return *code;
  check_machine(given);  // not the run's: what a GPU trained in tf32 may be evaluated on a CPU
  const lab::Checkpoint checkpoint = open_checkpoint(where);
  lab::TrainOptions options = lab::train_options(given_options(*app, given), checkpoint.options);
  of_the_command_line([&] { validate(options.data); });
  if (options.precision == "bfloat16") check_machine(options);
  mention_fewer_threads(options);
  keel::use_all_cores(lab::threads_here(options));
  lab::DataSet data = lab::load(options.data);
  lab::as_trained_on(data, checkpoint);
  options.recalibrate = recalibrate;
  const lab::ResNet model = lab::load_model(checkpoint);
  const lab::Images& images = split == "test" ? data.test : data.train;
  const lab::Evaluation result = lab::evaluate(model, images, data, options);
  lab::Evaluation again;
  if (recalibrate > 0)
    again = lab::evaluate(model, images, data, options, checkpoint.position.step);
  if (json) {
    nlohmann::json printed{{"checkpoint", where},
                           {"step", checkpoint.position.step},
                           {"recalibrated", checkpoint.recalibrated},
                           {"data", data.name},
                           {"split", split},
                           {"images", result.images},
                           {"loss", result.loss},
                           {"error", result.error},
                           {"images_per_second", result.images_per_second}};
    if (recalibrate > 0) {
      printed["recalibrated_loss"] = again.loss;
      printed["recalibrated_error"] = again.error;
    }
    put(stdout, "{}\n", printed.dump(2, ' ', true, nlohmann::json::error_handler_t::replace));
    return kDone;
  }
  put(stdout, "{} {} images of {}, step {}: error {}, loss {:.4f}, {:.0f} images/s\n",
      result.images, split, data.name, checkpoint.position.step, percent(result.error, 2),
      result.loss, result.images_per_second);
  if (checkpoint.recalibrated > 0)
    put(stdout, "the checkpoint's running statistics were recomputed from {} training batches\n",
        checkpoint.recalibrated);
  if (recalibrate > 0)
    put(stdout, "recomputed from {} training batches: error {}, loss {:.4f}\n", recalibrate,
        percent(again.error, 2), again.loss);
  return kDone;
}

}  // namespace keel::cli
