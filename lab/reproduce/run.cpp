#include "lab/reproduce/run.h"

#include <fmt/format.h>
#include <fnmatch.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <iostream>
#include <iterator>
#include <list>
#include <memory>
#include <optional>
#include <sstream>
#include <system_error>
#include <thread>

#include "lab/data/data_set.h"
#include "lab/report/recorder.h"
#include "lab/report/run_folder.h"
#include "lab/report/wording.h"
#include "lab/reproduce/child.h"
#include "lab/reproduce/results.h"
#include "lab/require.h"
#include "lab/storage/files.h"
#include "lab/storage/folder_claim.h"
#include "lab/storage/json.h"
#include "lab/storage/own_files.h"
#include "lab/train/signals.h"
#include "lab/train/stopwatch.h"

namespace keel::lab::reproduce {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

/// One training: its record, and where it ran.
struct TrialOutcome {
  Trial trial;
  Data data;
  std::string device;
};

constexpr std::int64_t kPoints = 60;       // per recorded curve, at most
constexpr std::int64_t kCheckpoints = 20;  // per run

/// Collects the records of a run, as its folder has them.
struct Collector : Observer {
  report::Run run;
  void on_start(const RunInfo& info) override { run.device = info.device; }
  void on_step(const StepRecord& record) override { run.steps.push_back(record); }
  void on_epoch(const EpochRecord& record) override { run.epochs.push_back(record); }
};

std::int64_t steps_of(const TrainOptions& options, const DataSet& data) {
  const std::int64_t steps = options.epochs * (data.train.count() / options.batch);
  return options.max_steps > 0 ? std::min(options.max_steps, steps) : steps;
}

/// Every k-th value counted from the last, at most kPoints of them.
std::vector<double> thinned(const std::vector<double>& values) {
  const std::size_t step = (values.size() + kPoints - 1) / kPoints;
  if (step <= 1) return values;
  std::vector<double> kept;
  for (std::size_t i = values.size(); i > 0; i = i > step ? i - step : 0)
    kept.push_back(values[i - 1]);
  std::ranges::reverse(kept);
  return kept;
}

/// Loads the data and trains in this process. With options.run it writes a run folder, or resumes the run in it. An
/// interrupted trial has that status. Throws keel::Error if another process trains in that folder. If the data are
/// not the `expected` ones, it does not train, and the outcome names the data.
TrialOutcome run_trial(const std::string& cell, TrainOptions options,
                       const std::optional<Data>& expected) {
  std::optional<FolderClaim> alone;
  if (!options.run.empty()) alone.emplace(options.run);
  const DataSet data = load(options.data);
  if (expected && !(*expected == description_of(data)))
    return {.trial = {.cell = cell, .seed = options.seed, .result = {.status = "other data"}},
            .data = description_of(data),
            .device = ""};
  const std::int64_t steps = steps_of(options, data);
  options.log_every = std::max<std::int64_t>(1, (steps + kPoints - 1) / kPoints);
  options.evaluate_every = (options.epochs + kPoints - 1) / kPoints;
  Collector collected;
  std::vector<Observer*> all{&collected};
  std::optional<report::Recorder> recorder;
  if (!options.run.empty()) {
    options.resume = true;
    options.keep = 2;
    options.checkpoint_every = std::max<std::int64_t>(1, steps / kCheckpoints);
    recorder.emplace(options.run,
                     [](const std::string& text) { report::put(stderr, text + "\n"); });
    all.push_back(&*recorder);
  }
  report::Observers observers(all);
  Trial trial{.cell = cell, .seed = options.seed, .result = train(options, data, observers)};
  Result& result = trial.result;
  // Of a resumed run, only the folder has the beginning.
  const report::Run run = recorder ? report::read_run(options.run) : collected.run;
  if (result.images_per_second == 0) {  // the run had already finished but was not recorded
    result.images_per_second = run.result.images_per_second;
    result.peak_mib = run.result.peak_mib;
  }
  if (result.status != "finished")
    result.test_error = result.recalibrated_test_error = result.followed_test_error = kNotDone;
  for (const StepRecord& step : run.steps) {
    trial.at.push_back(double(step.step));
    trial.loss.push_back(step.loss);
    trial.gradient.push_back(step.gradient_norm_layer);
  }
  for (const EpochRecord& epoch : run.epochs)
    for (const auto& [errors, error] : {std::pair(&trial.test_errors, epoch.test_error),
                                        {&trial.recalibrated_errors, epoch.recalibrated_test_error},
                                        {&trial.followed_errors, epoch.followed_test_error}})
      if (!std::isnan(error)) errors->push_back(error);
  for (auto* curve : {&trial.at, &trial.loss, &trial.gradient, &trial.test_errors,
                      &trial.recalibrated_errors, &trial.followed_errors})
    *curve = thinned(*curve);
  return {trial, description_of(data), collected.run.device};
}

Json to_json(const TrialOutcome& outcome) {
  return {{"trial", to_json(outcome.trial)},
          {"data", to_json(outcome.data)},
          {"device", outcome.device}};
}

TrialOutcome outcome_of(const Json& json) {
  return {trial_of(json.at("trial")), data_of(json.at("data")),
          json.at("device").get<std::string>()};
}

struct Wanted {
  const Cell* cell;
  std::uint64_t seed;

  std::string name() const { return fmt::format("{}-{}", cell->name, seed); }
};

struct Running {
  Wanted wanted;
  Clock::time_point since;
  std::unique_ptr<Child> child;
};

fs::path folder_of(const fs::path& file) { return fs::absolute(file).parent_path(); }

std::string last_lines(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  if (text.size() > 600) text = "..." + text.substr(text.size() - 600);
  return text.empty() ? "it said nothing" : text;
}

std::string outcome_text(const Trial& trial) {
  if (trial.result.failure) return "failed: " + trial.result.failure->what;
  std::string text = "test error " + report::percent(trial.result.test_error, 2);
  if (std::isfinite(trial.result.recalibrated_test_error))
    text += ", recalibrated " + report::percent(trial.result.recalibrated_test_error, 2);
  return text;
}

/// Runs the trials of one experiment, `jobs` at a time.
class Queue {
 public:
  Queue(const Recipe& recipe, const RunOptions& options, report::StatusLine& line)
      : recipe_(recipe),
        options_(options),
        line_(line),
        claim_(folder_of(options.results),
               "another process is working on " + folder_of(options.results).string()),
        origin_(this_origin(options.command)) {
    if (!options.fresh) results_ = read_results(options.results);
    require_same(results_, recipe, options.schedule, options.given);
    results_.experiment = recipe.name;
    results_.schedule = options.schedule;
    results_.options = identity(common_options(recipe, options.schedule, options.given));
    fill();
  }

  RunOutcome run() {
    total_ = std::int64_t(waiting_.size());
    // By default OpenMP's threads spin while they wait, and take cores from the other trials.
    if (options_.jobs > 1) ::setenv("OMP_WAIT_POLICY", "passive", /*overwrite=*/0);
    while (!waiting_.empty() || !running_.empty()) {
      if (should_stop()) stop();
      while (!outcome_.stopped && !waiting_.empty() &&
             std::int64_t(running_.size()) < options_.jobs)
        begin();
      for (auto one = running_.begin(); one != running_.end();)
        one = one->child->ended() ? (end(*one), running_.erase(one)) : std::next(one);
      show();
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return outcome_;
  }

 private:
  /// Ordered by seed, so that an interrupted run has trials of every cell.
  void fill() {
    const std::int64_t trials = options_.trials > 0 ? options_.trials : recipe_.trials;
    bool any = false;
    for (std::int64_t seed = 1; seed <= trials; ++seed) {
      for (const Cell& cell : recipe_.cells) {
        if (!cell.same_as.empty() || !matches(options_.cells, cell.name)) continue;
        any = true;
        cell_options(recipe_, cell, options_.schedule, options_.given);  // reports bad options now
        if (!results_.find(cell.name, std::uint64_t(seed)))
          waiting_.push_back({&cell, std::uint64_t(seed)});
      }
    }
    require(any, "no cell of {} fits '{}'", recipe_.name, options_.cells);
  }

  void begin() {
    const Wanted wanted = waiting_.front();
    waiting_.pop_front();
    TrainOptions train = cell_options(recipe_, *wanted.cell, options_.schedule, options_.given);
    train.seed = wanted.seed;
    if (train.threads == 0 && options_.jobs > 1)
      train.threads = std::max<std::int64_t>(1, origin_.cores / options_.jobs);
    if (!options_.runs.empty()) {
      train.run = fs::absolute(options_.runs) / fmt::format("{}-{}", recipe_.name, wanted.name());
      if (options_.fresh) {  // otherwise the trial would resume the old run
        const FolderClaim alone(train.run);
        OwnFiles own(train.run);
        require(own.listed() || is_empty_folder(train.run),
                "{} holds files that keel does not know as its own", train.run.string());
        own.remove_all(run_files::kConfig);
      }
    }
    Json note = {{"cell", wanted.cell->name}, {"parent", ::getpid()}};
    note["options"] = lab::to_json(train);
    if (results_.data) note["data"] = to_json(*results_.data);
    running_.push_back(
        {wanted, Clock::now(),
         std::make_unique<Child>(std::vector<std::string>{"reproduce", recipe_.name, "--trial"},
                                 note.dump())});
  }

  void end(Running& one) {
    const int code = *one.child->ended();
    const std::string who = fmt::format("[{}/{}] {} {} seed {}", ++ended_, total_, recipe_.name,
                                        one.wanted.cell->name, one.wanted.seed);
    const std::string answer = one.child->answer();
    if (!answer.ends_with('\n')) {
      if (outcome_.stopped) return;
      ++outcome_.crashed;
      line_.print(
          fmt::format("{}: ended with code {} and no result; the next call will try again. {}", who,
                      code, last_lines(one.child->log())));
      return;
    }
    TrialOutcome found = outcome_of(parse_ordered_json(answer, who));
    if (found.trial.result.status == "interrupted") return stop();
    record(found);
    line_.print(fmt::format("{}: {} ({}, {:.0f} images/s)", who, outcome_text(found.trial),
                            report::duration(seconds_since(one.since)),
                            found.trial.result.images_per_second));
  }

  void record(TrialOutcome& found) {
    require(!results_.data || *results_.data == found.data,
            "{}: the existing results are from {}, but this call's data are {}; --fresh discards "
            "them, --out keeps them",
            recipe_.name, results_.data ? results_.data->text() : "", found.data.text());
    results_.data = found.data;
    origin_.device = found.device;
    found.trial.origin = results_.place(origin_);
    results_.cells[found.trial.cell] = recipe_.find(found.trial.cell)->train;
    results_.trials.push_back(found.trial);
    write_results(options_.results, results_);
    ++outcome_.ran;
    outcome_.failed += found.trial.result.failure.has_value();
  }

  bool should_stop() const {
    return signals_.requested() || (options_.budget > 0 && seconds_since(begun_) > options_.budget);
  }

  void stop() {
    if (outcome_.stopped) return;
    outcome_.stopped = true;
    waiting_.clear();
    for (Running& one : running_) one.child->stop();
  }

  void show() const {
    std::string names;
    for (const Running& one : running_)
      names += fmt::format("{}{} ({:.0f} s)", names.empty() ? "" : ", ", one.wanted.name(),
                           seconds_since(one.since));
    line_.show(fmt::format("{} of {}: {}", ended_, total_, names));
  }

  const Recipe& recipe_;
  const RunOptions& options_;
  report::StatusLine& line_;
  const StopOnSignal signals_;
  const Clock::time_point begun_ = Clock::now();
  /// Each call rewrites the whole results file from what it read at the start, so only one may run.
  const FolderClaim claim_;
  Origin origin_;
  Results results_;
  RunOutcome outcome_;
  std::deque<Wanted> waiting_;
  std::list<Running> running_;
  std::int64_t total_ = 0, ended_ = 0;
};

}  // namespace

bool matches(const std::string& patterns, const std::string& name) {
  if (patterns.empty()) return true;
  std::stringstream stream(patterns);
  for (std::string one; std::getline(stream, one, ',');)
    if (::fnmatch(one.c_str(), name.c_str(), 0) == 0) return true;
  return false;
}

RunOutcome run_trials(const Recipe& recipe, const RunOptions& options, report::StatusLine& line) {
  return Queue(recipe, options, line).run();
}

void run_requested_trial() {
  const std::string request{std::istreambuf_iterator<char>(std::cin), {}};
  const Json note = parse_ordered_json(request, "keel reproduce --trial");
  // End with the parent: a trial that keeps running would block the next call.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  require(::getppid() == note.at("parent").get<pid_t>(),
          "the call that asked for this trial is gone");
  std::optional<Data> expected;
  if (note.contains("data")) expected = data_of(note.at("data"));
  const TrialOutcome outcome =
      run_trial(note.at("cell").get<std::string>(),
                train_options(nlohmann::json(note.at("options"))), expected);
  // The end of the line says that the answer is whole.
  std::FILE* answer = ::fdopen(Child::kAnswer, "w");
  const std::string text = to_json(outcome).dump() + "\n";
  require(answer && std::fwrite(text.data(), 1, text.size(), answer) == text.size() &&
              std::fclose(answer) == 0,
          "keel reproduce --trial: nobody takes the answer");
}

}  // namespace keel::lab::reproduce
