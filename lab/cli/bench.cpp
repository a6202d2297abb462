#include "lab/train/bench.h"
#include "lab/report/settings.h"
#include "lab/report/table.h"
#include "lab/report/wording.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "lab/cli/command.h"
#include "lab/cli/options.h"
#include "lab/storage/files.h"

namespace keel::cli {
namespace {

using lab::report::put;

/// KIND[/GROUP_SIZE[/RULE]]: zca, zca/16, zca/16/power_iteration.
lab::NormOptions layer(const std::string& text) {
  std::vector<std::string> words;
  std::stringstream stream(text);
  for (std::string word; std::getline(stream, word, '/');) words.push_back(word);
  lab::NormOptions norm;
  try {
    if (words.empty() || words.size() > 3) throw Error("wrong number of parts");
    norm.kind = words[0];
    if (words.size() > 1) {
      std::size_t read = 0;
      norm.group_size = std::stoll(words[1], &read);
      if (read != words[1].size()) throw Error("no number");
    }
    if (words.size() > 2) norm.rule = words[2];
  } catch (const std::exception&) {
    throw UsageError(
        fmt::format("expected KIND[/GROUP_SIZE[/RULE]], such as zca/16/exact, got '{}'", text));
  }
  return norm;
}

nlohmann::json to_json(const lab::StepTiming& timing) {
  return {{"name", lab::report::layer_name(timing.options)},
          {"graph", timing.graph},
          {"milliseconds", timing.milliseconds},
          {"least", timing.least},
          {"most", timing.most},
          {"images_per_second", timing.images_per_second},
          {"ratio", timing.ratio},
          {"peak_mib", timing.peak_mib}};
}

void print(const std::vector<lab::StepTiming>& timings) {
  lab::report::Table table(
      {"layer", "step", "ms", "least ... most", "images/s", "to batch", "peak MiB"}, 2);
  for (const auto& t : timings)
    table.add({lab::report::layer_name(t.options), t.graph ? "graph" : "eager",
               fmt::format("{:.3f}", t.milliseconds),
               fmt::format("{:.3f} ... {:.3f}", t.least, t.most),
               fmt::format("{:.0f}", t.images_per_second), fmt::format("{:.3f}x", t.ratio),
               t.peak_mib > 0 ? fmt::format("{:.0f}", t.peak_mib) : "-"});
  put(stdout, table.aligned());
}

}  // namespace

int bench(const std::vector<std::string>& arguments) {
  lab::BenchOptions options;
  std::string file;
  std::vector<std::string> layers = {"zca", "zca/0/power_iteration", "pca"};
  const auto app = make_app("bench",
                            "Times whole training steps on random images: augmentation, forward, "
                            "backward, optimiser. BatchNorm is always among the layers.");
  app->add_option("--layers", layers, "layers, each KIND[/GROUP_SIZE[/RULE]]")
      ->capture_default_str();
  app->add_option("--steps", options.steps, "steps in a round")
      ->check(within({1, 1000000}))
      ->capture_default_str();
  app->add_option("--rounds", options.rounds, "rounds of each layer; they take turns")
      ->check(within({1, 1000000}))
      ->capture_default_str();
  app->add_flag("--eager,!--no-eager", options.eager, "steps launched one operator at a time [on]");
  app->add_option("--json", file, "write the figures to this file, in place of what it was")
      ->type_name("FILE");
  add_options(
      *app, options.train,
      {"model", "width", "where", "classes", "dead_channels", "batch", "size", "precision",
       "channels_last", "device", "graph", "fused", "threads", "seed", "follow", "follow_every"});
  app->get_option("--batch")->description("images in a step");
  if (const auto code = parse(*app, arguments)) return *code;
  options.graph = options.train.graph;
  for (const auto& text : layers) {
    options.norms.push_back(layer(text));
    lab::TrainOptions one = options.train;
    one.model.norm = options.norms.back();
    check(one);
  }
  check_machine(options.train);
  if (!file.empty()) lab::check_writable(file);
  mention_fewer_threads(options.train);
  nlohmann::json rows = nlohmann::json::array();
  put(stdout, "{}, {}, batch {}, {}{}\n", version(), options.train.model.name, options.train.batch,
      options.train.precision, options.train.channels_last ? ", channels_last" : "");
  const auto timings = lab::bench_train(options);
  print(timings);
  for (const auto& timing : timings) rows.push_back(to_json(timing));
  if (!file.empty()) {
    lab::write_file_atomically(file, nlohmann::json{{"version", version()},
                                                    {"options", lab::to_json(options.train)},
                                                    {"steps", options.steps},
                                                    {"rounds", options.rounds},
                                                    {"timings", rows}}
                                             .dump(2) +
                                         "\n");
  }
  return kDone;
}

}  // namespace keel::cli
