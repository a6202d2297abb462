#include <fmt/format.h>

#include <ctime>

#include "cli/command.h"
#include "cli/options.h"
#include "lab/data/data_set.h"
#include "lab/report/progress.h"
#include "lab/report/recorder.h"
#include "lab/report/text.h"
#include "lab/train/trainer.h"

namespace keel::cli {
namespace {

namespace fs = std::filesystem;
using lab::report::StatusLine;

struct TrainCommand {
  lab::TrainOptions options;
  std::string run, resume;
  bool overwrite = false;
};

/// The word after --resume, before the real parse: that run's config is where defaults come from.
std::string resumed_folder(const std::vector<std::string>& arguments) {
  const std::string name = "--resume";
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == name && i + 1 < arguments.size()) return arguments[i + 1];
    if (arguments[i].rfind(name + "=", 0) == 0) return arguments[i].substr(name.size() + 1);
  }
  return {};
}

std::string fresh_name(const lab::TrainOptions& options) {
  char day[32];
  const std::time_t now = std::time(nullptr);
  std::strftime(day, sizeof(day), "%Y%m%d-%H%M%S", std::localtime(&now));
  const auto& norm = options.model.norm;
  const bool ruled = norm.kind == "zca" || norm.kind == "pca";
  return fmt::format("{}-{}-{}{}-seed{}", day, options.model.name, norm.kind,
                     ruled ? "-" + norm.rule : "", options.seed);
}

/// An earlier run's files must not be mixed with a new one's.
void clear_run(const fs::path& folder) {
  for (const char* name : {"config.toml", "metrics.jsonl", "result.json", "spectrum.json"})
    fs::remove(folder / name);
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().filename().string().rfind("events.out.tfevents.", 0) == 0)
      fs::remove(entry.path());
  fs::remove_all(folder / "checkpoints");
}

void settle_folder(TrainCommand& command) {
  auto& options = command.options;
  if (!command.resume.empty()) {
    if (!command.run.empty()) throw UsageError("keel train: expected --run or --resume, got both");
    options.run = command.resume;
    options.resume = true;
    return;
  }
  options.run =
      command.run.empty() ? fs::path("runs") / fresh_name(options) : fs::path(command.run);
  const bool used =
      fs::exists(options.run / "metrics.jsonl") || fs::exists(options.run / "checkpoints");
  if (!used) return;
  if (!command.overwrite) {
    throw UsageError(fmt::format(
        "keel train: {} holds a run already: --resume {} goes on with it, --overwrite replaces it",
        options.run.string(), options.run.string()));
  }
  clear_run(options.run);
}

}  // namespace

int train(const std::vector<std::string>& arguments) {
  TrainCommand command;
  const auto app = make_app("train", "Trains a network and writes a run folder.");
  app->add_option("--run", command.run, "folder to write to [runs/ and a name with the date]")
      ->type_name("FOLDER")
      ->configurable(false)
      ->group("Run folder");
  app->add_option("--resume", command.resume,
                  "go on with the run in this folder, from its newest good checkpoint and with its "
                  "config.toml")
      ->type_name("FOLDER")
      ->check(CLI::ExistingDirectory)
      ->configurable(false)
      ->group("Run folder");
  app->add_flag("--overwrite", command.overwrite, "replace a run that is in the folder already")
      ->configurable(false)
      ->group("Run folder");
  const fs::path resumed = resumed_folder(arguments);
  if (!resumed.empty() && !fs::exists(resumed / "config.toml"))
    throw UsageError(
        fmt::format("keel train: {} has no config.toml to resume with", resumed.string()));
  add_config(*app, resumed.empty() ? fs::path() : resumed / "config.toml");
  add_options(*app, command.options);
  try {
    parse(*app, arguments);
  } catch (const CLI::ParseError& error) {
    return app->exit(error) == 0 ? kDone : kUsage;
  }
  settle_folder(command);
  check(command.options);

  StatusLine line(stderr);
  const lab::DataSet data = lab::load(
      command.options.data, [&](const std::string& what, std::int64_t done, std::int64_t total) {
        lab::report::show_loading(line, what, done, total);
      });
  for (const auto& note : data.notes) line.print(note);
  lab::report::ProgressPrinter printer(line);
  lab::report::Recorder recorder(command.options.run,
                                 [&](const std::string& message) { line.print(message); });
  lab::report::Observers observers({&recorder, &printer});
  const lab::Result result = lab::train(command.options, data, observers);
  line.clear();
  fmt::print("{}\n", command.options.run.string());
  if (result.status == "failed") return kDiverged;
  if (result.status != "interrupted") return kDone;
  fmt::print(stderr, "interrupted; `keel train --resume {}` goes on\n",
             command.options.run.string());
  return kInterrupted;
}

}  // namespace keel::cli
