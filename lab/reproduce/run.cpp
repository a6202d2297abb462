#include "lab/reproduce/run.h"

#include <fmt/format.h>
#include <fnmatch.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <iterator>
#include <list>
#include <memory>
#include <optional>
#include <sstream>
#include <string_view>
#include <system_error>
#include <thread>

#include "lab/cli/command_line.h"  // the exit codes of keel train
#include "lab/data/data_set.h"
#include "lab/report/run_folder.h"
#include "lab/report/wording.h"
#include "lab/reproduce/results.h"
#include "lab/require.h"
#include "lab/storage/folder_claim.h"
#include "lab/storage/own_files.h"
#include "lab/train/signals.h"
#include "lab/train/stopwatch.h"

namespace keel::lab::reproduce {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::int64_t kPoints = 60;       // per recorded curve, at most
constexpr std::int64_t kCheckpoints = 20;  // per run

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

/// What is recorded of a run that has ended.
Trial trial_of(const std::string& cell, std::uint64_t seed, const report::Run& run) {
  Trial trial{.cell = cell, .seed = seed, .result = run.result};
  Result& result = trial.result;
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
  return trial;
}

/// A file without a name. It is gone with the last process that has it, however they end.
using NamelessFile = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;
NamelessFile nameless_file(std::string_view text = "") {
  NamelessFile file(std::tmpfile(), std::fclose);
  if (!file || std::fwrite(text.data(), 1, text.size(), file.get()) != text.size() ||
      std::fflush(file.get()) != 0)
    throw std::system_error(errno, std::generic_category(), "a temporary file");
  return file;
}

/// A child process that runs this program. It ends with this process, and the destructor ends it if it still runs.
class Child {
 public:
  /// Its standard input is a file that begins with `input`. Throws std::system_error.
  Child(const std::vector<std::string>& arguments, std::string_view input)
      : input_(nameless_file(input)) {
    std::vector<std::string> words{std::filesystem::read_symlink("/proc/self/exe").string()};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    const pid_t parent = ::getpid();
    process_ = ::fork();
    if (process_ < 0)
      throw std::system_error(errno, std::generic_category(), "cannot start " + words[0]);
    if (process_ > 0) return;
    // Only what a child of a process with threads may call. A parent that is gone by now would send no signal.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() == parent && ::dup2(::fileno(input_.get()), 0) == 0 &&
        ::dup2(::fileno(log_.get()), 1) == 1 && ::dup2(1, 2) == 2)
      ::execv(pointers[0], pointers.data());
    ::_exit(127);
  }
  ~Child() {
    if (ended()) return;
    ::kill(process_, SIGKILL);
    int status = 0;
    ::waitpid(process_, &status, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  /// The exit code, or 128 plus the signal that ended it. Empty while it runs.
  std::optional<int> ended() {
    int status = 0;
    if (!code_ && ::waitpid(process_, &status, WNOHANG) == process_)
      code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return code_;
  }
  /// What it printed.
  std::string log() const {
    std::rewind(log_.get());
    std::string text;
    for (int c; (c = std::getc(log_.get())) != EOF;) text += char(c);
    return text;
  }
  /// Asks it to end.
  void stop() {
    if (!ended()) ::kill(process_, SIGTERM);
  }

 private:
  const NamelessFile input_, log_ = nameless_file();
  pid_t process_ = -1;
  std::optional<int> code_;
};

struct Wanted {
  const Cell* cell;
  std::uint64_t seed;

  std::string name() const { return fmt::format("{}-{}", cell->name, seed); }
};

struct Running {
  Wanted wanted;
  fs::path run;
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
    if (total_ > 0) require_same_data();
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
    for (std::int64_t seed = 1; seed <= trials; ++seed)
      for (const Cell& cell : recipe_.cells)
        if (cell.same_as.empty() && matches(options_.cells, cell.name) &&
            !results_.find(cell.name, std::uint64_t(seed)))
          waiting_.push_back({&cell, std::uint64_t(seed)});
  }

  /// All trials have the same images.
  void require_same_data() {
    const Cell& first = *waiting_.front().cell;
    const Data found =
        description_of(load(cell_options(recipe_, first, options_.schedule, options_.given).data));
    require(!results_.data || *results_.data == found,
            "{}: the existing results are from {}, but this call's data are {}; --fresh discards "
            "them, --out keeps them",
            recipe_.name, results_.data ? results_.data->text() : "", found.text());
    results_.data = found;
  }

  bool keeps_runs() const { return !options_.runs.empty(); }

  void begin() {
    const Wanted wanted = waiting_.front();
    waiting_.pop_front();
    TrainOptions train = cell_options(recipe_, *wanted.cell, options_.schedule, options_.given);
    train.seed = wanted.seed;
    if (train.threads == 0 && options_.jobs > 1)
      train.threads = std::max<std::int64_t>(1, origin_.cores / options_.jobs);
    std::int64_t steps = train.epochs * (results_.data->train / train.batch);
    if (train.max_steps > 0) steps = std::min(steps, train.max_steps);
    train.log_every = std::max<std::int64_t>(1, (steps + kPoints - 1) / kPoints);
    train.evaluate_every = (train.epochs + kPoints - 1) / kPoints;
    train.keep = 2;
    // Without --runs the run folder goes at the end, and needs only the checkpoint there.
    train.checkpoint_every = std::max<std::int64_t>(1, keeps_runs() ? steps / kCheckpoints : steps);
    const fs::path run = keeps_runs() ? fs::absolute(options_.runs) /
                                            fmt::format("{}-{}", recipe_.name, wanted.name())
                                      : folder_of(options_.results) / (wanted.name() + ".running");
    std::vector<std::string> words{"train", "--config", "/dev/stdin"};
    if (keeps_runs() && !options_.fresh && fs::exists(run / run_files::kConfig))
      words.insert(words.end(), {"--resume", run.string()});
    else
      words.insert(words.end(), {"--run", run.string(), "--overwrite"});
    running_.push_back({wanted, run, Clock::now(), std::make_unique<Child>(words, to_toml(train))});
  }

  void end(Running& one) {
    const int code = *one.child->ended();
    const std::string who = fmt::format("[{}/{}] {} {} seed {}", ++ended_, total_, recipe_.name,
                                        one.wanted.cell->name, one.wanted.seed);
    if (code == cli::kDone || code == cli::kDiverged) {
      const report::Run run = report::read_run(one.run);
      const Trial trial = trial_of(one.wanted.cell->name, one.wanted.seed, run);
      record(trial, run.device);
      line_.print(fmt::format("{}: {} ({}, {:.0f} images/s)", who, outcome_text(trial),
                              report::duration(seconds_since(one.since)),
                              trial.result.images_per_second));
    } else if (code == cli::kInterrupted) {
      stop();
    } else if (!outcome_.stopped) {
      ++outcome_.crashed;
      line_.print(
          fmt::format("{}: ended with code {} and no result; the next call will try again. {}", who,
                      code, last_lines(one.child->log())));
    }
    if (!keeps_runs()) OwnFiles::remove_folder(one.run);
  }

  void record(Trial trial, const std::string& device) {
    origin_.device = device;
    trial.origin = results_.place(origin_);
    results_.cells[trial.cell] = recipe_.find(trial.cell)->train;
    results_.trials.push_back(trial);
    write_results(options_.results, results_);
    ++outcome_.ran;
    outcome_.failed += trial.result.failure.has_value();
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

}  // namespace keel::lab::reproduce
