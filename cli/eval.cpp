#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/checkpoint.h"
#include "cli/command.h"
#include "cli/options.h"
#include "keel/torch/threads.h"
#include "lab/report/progress.h"
#include "lab/report/text.h"
#include "lab/train/evaluate.h"
#include "lab/train/trainer.h"

namespace keel::cli {
namespace {

using lab::report::percent;

void print_classes(const lab::Evaluation& result, const std::vector<std::string>& classes) {
  std::size_t width = 5;
  for (const auto& name : classes) width = std::max(width, lab::report::columns(name));
  fmt::print("\n{:<{}}  {:>8}  {:>8}\n", "class", width, "images", "error");
  const auto counts = result.confusion.accessor<std::int64_t, 2>();
  for (std::size_t i = 0; i < classes.size() && std::int64_t(i) < counts.size(0); ++i) {
    std::int64_t images = 0;
    for (std::int64_t j = 0; j < counts.size(1); ++j) images += counts[i][j];
    const double error = 1 - double(counts[i][i]) / double(std::max<std::int64_t>(images, 1));
    fmt::print("{:<{}}  {:>8}  {:>8}\n", classes[i], width, images,
               images > 0 ? percent(error) : "-");
  }
}

}  // namespace

int evaluate(const std::vector<std::string>& arguments) {
  std::string where, split = "test";
  bool json = false, classes = false;
  lab::TrainOptions given;
  const auto app = make_app(
      "eval", "Test error of a checkpoint. Data and machine options default to the run's.");
  app->add_option("checkpoint", where, "run folder, or one checkpoint's file")->required();
  app->add_option("--split", split, "which images")
      ->check(CLI::IsMember({"test", "train"}))
      ->capture_default_str();
  app->add_flag("--classes", classes, "the error of each class too");
  app->add_flag("--json", json, "print JSON");
  std::set<std::string> names = data_option_names();
  names.insert(machine_option_names().begin(), machine_option_names().end());
  add_options(*app, given, names);
  try {
    parse(*app, arguments);
  } catch (const CLI::ParseError& error) {
    return app->exit(error) == 0 ? kDone : kUsage;
  }
  lab::report::StatusLine line(stderr);
  const lab::Checkpoint checkpoint = open_checkpoint(where, line);
  lab::TrainOptions options = overridden(checkpoint.options, given, *app);
  keel::use_all_cores(int(options.threads));
  lab::DataSet data =
      lab::load(options.data, [&](const std::string& what, std::int64_t done, std::int64_t total) {
        lab::report::show_loading(line, what, done, total);
      });
  line.clear();
  lab::as_trained_on(data, checkpoint);
  const lab::Evaluation result = lab::evaluate(
      lab::load_model(checkpoint), split == "test" ? data.test : data.train, data, options);
  if (json) {
    fmt::print("{}\n", nlohmann::json{{"checkpoint", where},
                                      {"step", checkpoint.position.step},
                                      {"data", data.name},
                                      {"split", split},
                                      {"images", result.images},
                                      {"loss", result.loss},
                                      {"error", result.error},
                                      {"images_per_second", result.images_per_second}}
                           .dump(2));
    return kDone;
  }
  fmt::print("{} {} images of {}, step {}: error {}, loss {:.4f}, {:.0f} images/s\n", result.images,
             split, data.name, checkpoint.position.step, percent(result.error, 2), result.loss,
             result.images_per_second);
  if (classes) print_classes(result, checkpoint.classes);
  return kDone;
}

}  // namespace keel::cli
