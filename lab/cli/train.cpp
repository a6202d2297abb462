#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <ctime>
#include <optional>

#include "lab/cli/command.h"
#include "lab/cli/options.h"
#include "lab/data/data_set.h"
#include "lab/processes/processes.h"
#include "lab/report/progress.h"
#include "lab/report/recorder.h"
#include "lab/report/wording.h"
#include "lab/storage/folder_claim.h"
#include "lab/storage/own_files.h"
#include "lab/train/checkpoint.h"
#include "lab/train/step.h"
#include "lab/train/trainer.h"

namespace keel::cli {
namespace {

namespace fs = std::filesystem;
using lab::report::put;
using lab::report::StatusLine;

struct TrainCommand {
  lab::TrainOptions options;
  std::string run, resume, config;
  bool overwrite = false;
};

std::string fresh_name(const lab::TrainOptions& options) {
  const std::time_t now = std::time(nullptr);
  const auto& norm = options.model.norm;
  return fmt::format("{:%Y%m%d-%H%M%S}-{}-{}{}{}-seed{}", *std::localtime(&now), options.model.name,
                     norm.kind, whitens(norm) ? "-" + norm.rule : "",
                     options.model.where == "all" ? "-all" : "", options.seed);
}

/// Throws if the run would write to what keel did not make.
void require_ours(const TrainCommand& command) {
  const fs::path& run = command.options.run;
  const std::string given = run.string(), in_shell = for_shell(given);
  const lab::OwnFiles own(run);
  if (!command.options.resume && !own.listed() && !lab::is_empty_folder(run))
    throw UsageError(fmt::format(
        "expected a new folder, an empty one or a run's as --run, {} holds other files", given));
  if (!command.options.resume && !own.empty() && !command.overwrite)
    throw UsageError(
        fmt::format("{} already holds a run: --resume {} continues it, --overwrite replaces it",
                    given, in_shell));
  if (command.options.resume && !own.listed() && !lab::is_empty_folder(run))
    throw Error(fmt::format(
        "cannot resume {}: it has no {}, keel's list of its files; copy that along with the run",
        given, lab::OwnFiles::kName));
  own.check({lab::run_files::kConfig, lab::run_files::kMetrics, lab::run_files::kResult,
             lab::run_files::kSpectrum, lab::run_files::kCheckpoints});
}

/// Determines the run folder from the command line, and checks that it may be written to.
void settle_folder(TrainCommand& command) {
  auto& options = command.options;
  if (!command.resume.empty()) {
    if (!command.run.empty()) throw UsageError("expected --run or --resume, got both");
    if (command.overwrite) throw UsageError("expected --resume or --overwrite, got both");
    options.run = command.resume;
    options.resume = true;
  } else if (!command.run.empty()) {
    options.run = command.run;
  }
  if (!options.run.empty()) require_ours(command);
}

/// Claims the run folder for this process for as long as it trains.
lab::FolderClaim claim_folder(TrainCommand& command) {
  fs::path& run = command.options.run;
  if (run.empty()) {
    auto claim = lab::FolderClaim::on_new(fs::path("runs") / fresh_name(command.options));
    run = claim.path();
    return claim;
  }
  lab::FolderClaim claim(run);
  settle_folder(command);  // again, because another run may have used the folder since
  return claim;
}

/// `place` is null if this process trains alone. Otherwise `processes` joins the others, once this one is ready to train.
int run(TrainCommand& command, const lab::Place* place, std::optional<lab::Processes>& processes) {
  const bool first = place == nullptr || place->process == 0;
  StatusLine line(stderr);
  const lab::DataSet data = lab::load(command.options.data);
  of_the_command_line(
      [&] { lab::require_batches(command.options, data, place ? place->size : 1); });
  if (place != nullptr)
    processes.emplace(*place, lab::device_of(command.options, place->local_rank),
                      std::chrono::milliseconds(std::int64_t(1000 * command.options.timeout)));
  lab::report::ProgressPrinter printer(line);
  lab::report::Recorder recorder(
      command.options.run, [&](const std::string& message) { line.print(message); },
      command.overwrite);
  lab::report::Observers observers({&recorder, &printer});
  const lab::Result result = [&] {
    try {
      return processes ? lab::train(command.options, data, observers, *processes)
                       : lab::train(command.options, data, observers);
    } catch (const lab::Damaged& error) {
      const std::string run = for_shell(command.options.run.string());
      throw Error(
          fmt::format("{}. Nothing was changed; `keel train --config {}/{} --run {} --overwrite` "
                      "starts the run again",
                      error.what(), run, lab::run_files::kConfig, run));
    }
  }();
  line.clear();
  const std::string folder = command.options.run.string(), in_shell = for_shell(folder);
  if (first) {  // as it is for a script, which reads it from a pipe
    const bool terminal = isatty(STDOUT_FILENO) != 0;
    lab::report::put_raw(stdout, (terminal ? lab::report::harmless(folder) : folder) + "\n");
  }
  if (result.status == "failed") return kDiverged;
  if (!result.unsaved.empty()) {
    put(stderr,
        error_line(
            fmt::format("the work since the last checkpoint is lost, because step {}'s could "
                        "not be written ({}); `keel train --resume {}` continues from there",
                        result.steps, result.unsaved, in_shell),
            "train"));
    return kUnexpected;
  }
  if (first && !recorder.has_result()) {
    put(stderr,
        error_line("result.json could not be written; `keel train --resume " + in_shell + "` does",
                   "train"));
    return kUnexpected;
  }
  if (result.status != "interrupted") return kDone;
  if (first)
    put(stderr, fmt::format("interrupted; `keel train --resume {}` continues\n", in_shell));
  return kInterrupted;
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
                  "continue the run in this folder, from its newest good checkpoint and with its "
                  "config.toml")
      ->type_name("FOLDER")
      ->check(CLI::ExistingDirectory)
      ->configurable(false)
      ->group("Run folder");
  app->add_flag("--overwrite", command.overwrite, "replace a run that is already in the folder")
      ->configurable(false)
      ->group("Run folder");
  app->add_option("--config", command.config, "TOML file with options of the same names")
      ->type_name("FILE")
      ->configurable(false);
  add_options(*app, command.options);
  if (const auto code = parse(*app, arguments)) return *code;
  const auto resumed = fs::path(command.resume) / lab::run_files::kConfig;
  if (!command.resume.empty() && !fs::exists(resumed))
    throw UsageError(fmt::format("{} has no config.toml to resume with", command.resume));
  if (!command.resume.empty() && command.config.empty()) command.config = resumed.string();
  if (!command.config.empty()) read_config(*app, command.config, command.options);
  check(command.options);
  const auto place = of_the_command_line(lab::place_from_environment);
  const bool first = !place || place->process == 0;
  if (first) {
    settle_folder(command);
    mention_fewer_threads(command.options);
  }
  check_machine(command.options);
  std::optional<lab::FolderClaim> folder;
  if (first) folder.emplace(claim_folder(command));
  std::optional<lab::Processes> processes;
  try {
    return run(command, place ? &*place : nullptr, processes);
  } catch (const std::exception& error) {
    if (!processes) throw;
    // Threads and device work that wait for other processes may never finish, and neither would their destructors.
    folder.reset();
    const bool broken = !processes->broken().empty();
    const auto [code, words] =
        broken ? explained(lab::ProcessError(processes->broken())) : explained(error);
    put(stderr, error_line(words, "train"));
    std::fflush(stdout);
    _exit(code);
  }
}

}  // namespace keel::cli
