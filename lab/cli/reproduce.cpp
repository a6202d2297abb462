#include <fmt/format.h>

#include <set>

#include "lab/cli/command.h"
#include "lab/cli/options.h"
#include "lab/report/progress.h"
#include "lab/report/table.h"
#include "lab/report/wording.h"
#include "lab/reproduce/measure.h"
#include "lab/reproduce/page.h"
#include "lab/reproduce/results.h"
#include "lab/reproduce/run.h"
#include "lab/require.h"
#include "lab/storage/files.h"
#include "lab/storage/folder_claim.h"

namespace keel::cli {
namespace {

using lab::report::put;

namespace fs = std::filesystem;
using namespace keel::lab::reproduce;
using lab::report::StatusLine;

struct ReproduceCommand {
  std::string name, out;
  fs::path recipes = "lab/experiments";
  std::vector<Recipe> all;  ///< in that folder
  bool list = false, page = false;
  RunOptions run;
  lab::TrainOptions train;

  fs::path folder() const { return out.empty() ? recipes / name : fs::path(out); }
};

/// Options that apply to every cell.
const std::set<std::string>& train_option_names() {
  static const auto names = [] {
    using enum lab::About;
    auto all = lab::options_about({data, place, arithmetic, machine});
    for (const char* name : {"model", "width", "batch", "epochs", "learning_rate", "max_steps",
                             "recalibrate", "recalibrate_norms", "follow", "follow_every"})
      all.insert(name);
    return all;
  }();
  return names;
}

void add_own_options(CLI::App& app, ReproduceCommand& command) {
  RunOptions& run = command.run;
  app.add_option("NAME", command.name, "the experiment: see --list");
  app.add_flag("--list", command.list, "list the experiments and what they cost");
  app.add_flag(
      "--page", command.page,
      "run nothing, only write the pages from the results (with --out: the experiment's there)");
  app.add_option(
         "--schedule", run.schedule,
         "paper (350 epochs) or short (one cycle) [the recipe's: short, except for full, full-100]")
      ->check(CLI::IsMember({"paper", "short"}));
  app.add_option("--trials", run.trials, "trials of each cell, with seeds from 1 [the recipe's]")
      ->check(within({1, 1000}));
  app.add_option("--cells", run.cells,
                 "only cells whose name fits one of these patterns: 'ours-*,bn'");
  app.add_option("--jobs", run.jobs, "trials side by side, each a process of its own")
      ->check(within({1, 256}))
      ->capture_default_str();
  app.add_option("--budget", run.budget,
                 "stop after this many seconds; the next call continues [none]")
      ->check(within({1, 1e9}));
  app.add_option("--out", command.out, "folder of the results [lab/experiments/NAME]")
      ->type_name("FOLDER");
  app.add_option("--recipes", command.recipes, "folder of the recipes")
      ->type_name("FOLDER")
      ->capture_default_str();
  app.add_option(
         "--runs", run.runs,
         "keep each trial's run folder in this folder, so that interrupted trials can continue")
      ->type_name("FOLDER");
  app.add_flag("--fresh", run.fresh, "discard existing results");
}

std::string command_text(const std::vector<std::string>& arguments) {
  std::string text = "keel reproduce";
  for (const auto& word : arguments) text += " " + for_shell(word);
  return text;
}

const Recipe& recipe_named(const std::vector<Recipe>& all, const std::string& name) {
  std::string names;
  for (const Recipe& recipe : all) {
    if (recipe.name == name) return recipe;
    names += (names.empty() ? "" : ", ") + recipe.name;
  }
  throw UsageError(fmt::format("expected one of {}, got '{}'", names, name));
}

void print_list(const std::vector<Recipe>& all) {
  lab::report::Table table({"experiment", "what", "cost"}, 3);
  for (const Recipe& recipe : all)
    table.add({recipe.name, recipe.title, cost(recipe, recipe.default_schedule)});
  put(stdout,
      "{}\nGPU minutes are counted at {} ms a step (ResNet18, batch 128, bfloat16, a CUDA graph, "
      "on "
      "an\nH200; {} steps an epoch) where the recipe says nothing else; without a graph a step "
      "takes\nabout 9 ms.\n",
      table.aligned(), kStepMilliseconds, kStepsPerEpoch);
}

void write_page_of(const Recipe& recipe, const fs::path& folder) {
  write_page(folder, page(recipe, read_results(results_file(recipe, folder))));
}

/// With --out the page of one recipe, otherwise all pages of the recipes' folder and its index.
void write_pages(const ReproduceCommand& command) {
  if (!command.name.empty()) {
    const Recipe& recipe = recipe_named(command.all, command.name);
    if (!command.out.empty()) return write_page_of(recipe, command.out);
  }
  std::vector<Results> results;
  for (const Recipe& recipe : command.all) {
    write_page_of(recipe, command.recipes / recipe.name);
    results.push_back(read_results(results_file(recipe, command.recipes / recipe.name)));
  }
  lab::write_file_atomically(command.recipes / "README.md", index_page(command.all, results));
}

int run_training(const Recipe& recipe, const RunOptions& options, StatusLine& line) {
  const RunOutcome outcome = run_trials(recipe, options, line);
  line.print(fmt::format("{}: {} trials run, {} of them failed, {} without a result{}", recipe.name,
                         outcome.ran, outcome.failed, outcome.crashed,
                         outcome.stopped ? "; stopped, the same command continues" : ""));
  if (outcome.stopped) return kInterrupted;
  return outcome.crashed > 0 ? kUnexpected : kDone;
}

int run_measurement(const Recipe& recipe, const RunOptions& options, StatusLine& line) {
  Results results = options.fresh ? Results() : read_results(options.results);
  require_same(results, recipe, options.schedule, options.given);
  if (!results.empty()) {
    line.print(fmt::format("{}: done already; --fresh measures again", recipe.name));
    return kDone;
  }
  const Json common = common_options(recipe, options.schedule, options.given);
  const Measuring what{
      .recipe = recipe,
      .options = lab::train_options(nlohmann::json(common)),
      .say = [&](const std::string& text) { line.print(recipe.name + ": " + text); }};
  const Measured measured = kind_of(recipe).measure(what);
  results.experiment = recipe.name;
  results.schedule = options.schedule;
  results.options = identity(common);
  results.data = measured.data;
  results.place(this_origin(options.command, measured.device));
  results.measured = measured.figures;
  write_results(options.results, results);
  return kDone;
}

/// Throws UsageError if the recipe has no such schedule or cells, or if its cells cannot have the given options.
void check_request(const Recipe& recipe, const RunOptions& run) {
  of_the_command_line([&] {
    common_options(recipe, run.schedule, run.given);
    if (!recipe.trains()) return;
    bool any = false;
    for (const Cell& cell : recipe.cells) {
      if (!cell.same_as.empty() || !matches(run.cells, cell.name)) continue;
      any = true;
      cell_options(recipe, cell, run.schedule, run.given);
    }
    require(any, "no cell of {} fits '{}'", recipe.name, run.cells);
  });
}

int run_experiment(ReproduceCommand& command, StatusLine& line) {
  const Recipe& recipe = recipe_named(command.all, command.name);
  command.run.results = results_file(recipe, command.folder());
  if (command.run.schedule.empty()) command.run.schedule = recipe.default_schedule;
  const Recipe& source =
      recipe.results_of.empty() ? recipe : recipe_named(command.all, recipe.results_of);
  if (&source != &recipe && command.run.cells.empty())  // its own of the source's cells
    for (const Cell& cell : recipe.cells)
      command.run.cells += (command.run.cells.empty() ? "" : ",") + cell.name;
  check_request(source, command.run);
  lab::check_marked(command.folder() / "README.md", kPageMark);
  lab::check_marked(command.run.results, "\"experiment\"");
  if (!recipe.trains()) return run_measurement(recipe, command.run, line);
  return run_training(source, command.run, line);
}

}  // namespace

int reproduce(const std::vector<std::string>& arguments) {
  ReproduceCommand command;
  const auto app =
      make_app("reproduce",
               "Runs an experiment of the paper, or one of ours, from its recipe, and writes "
               "results and a page with the paper's figures beside them. Trials that have been run "
               "are not run again. What a recipe leaves open is as in `keel train`.");
  add_own_options(*app, command);
  add_options(*app, command.train, train_option_names(), "the recipe's");
  if (const auto code = parse(*app, arguments)) return *code;
  if (command.name.empty() && !command.list && !command.page)
    throw UsageError("expected the name of an experiment; --list prints them");
  command.all = read_recipes(command.recipes);
  if (command.list) {
    print_list(command.all);
    return kDone;
  }
  if (command.page) {
    write_pages(command);
    return kDone;
  }
  command.run.given = given_options(*app, command.train);
  check_machine(command.train);
  command.run.command = command_text(arguments);
  StatusLine line(stderr);
  const int code = run_experiment(command, line);
  line.clear();
  write_pages(command);
  put(stdout, "wrote {}\n", (command.folder() / "README.md").string());
  return code;
}

}  // namespace keel::cli
