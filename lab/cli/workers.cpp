#include "lab/cli/workers.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <system_error>
#include <thread>

#include "lab/cli/command_line.h"
#include "lab/processes/loopback.h"
#include "lab/report/put.h"
#include "lab/train/signals.h"

namespace keel::cli {
namespace {

using Clock = std::chrono::steady_clock;
using lab::report::put;
using std::chrono::milliseconds;

// How long the others may continue after one worker has failed, and how long they then have to end.
constexpr auto kMoment = milliseconds(8000), kLastMoment = milliseconds(5000);

[[noreturn]] void fail(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

std::vector<std::string> without_workers(const std::vector<std::string>& arguments) {
  std::vector<std::string> rest;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--workers")
      ++i;
    else if (!arguments[i].starts_with("--workers="))
      rest.push_back(arguments[i]);
  }
  return rest;
}

/// Whether the process is stopped (SIGSTOP). In /proc/PID/stat the state follows the name in parentheses.
bool is_stopped(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  const std::string line((std::istreambuf_iterator<char>(file)), {});
  const auto name_ends = line.rfind(") ");
  return name_ends != std::string::npos && line.compare(name_ends + 2, 1, "T") == 0;
}

struct Worker {
  std::int64_t number = 0;
  pid_t process = -1;
  int errors = -1;   ///< the pipe of its stderr; -1 means it shares ours
  std::string line;  ///< the incomplete last line from that pipe
  std::optional<int> status;

  /// Whether it ended with an exit code that all workers reach together.
  bool ended_with_all() const {
    return status && (code() == kDone || code() == kDiverged || code() == kInterrupted);
  }
  int code() const { return WIFEXITED(*status) ? WEXITSTATUS(*status) : int(kProcesses); }
};

class Workers {
 public:
  Workers(const std::vector<std::string>& arguments, std::int64_t count,
          const lab::TrainOptions& options)
      : words_(without_workers(arguments)),
        grace_(milliseconds(std::int64_t(1000 * options.timeout)) + kLastMoment) {
    words_.insert(words_.begin(), {"keel", "train"});
    const auto cores = std::int64_t(std::thread::hardware_concurrency());
    const std::string threads = std::to_string(std::max<std::int64_t>(1, cores / count));
    // Workers that each used all cores would slow each other down.
    if (options.threads == 0) setenv("OMP_NUM_THREADS", threads.c_str(), /*overwrite=*/0);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", std::to_string(lab::free_port()).c_str(), 1);
    setenv("WORLD_SIZE", std::to_string(count).c_str(), 1);
    // Do not inherit torchrun's store or restart count.
    unsetenv("TORCHELASTIC_USE_AGENT_STORE");
    unsetenv("TORCHELASTIC_RESTART_COUNT");
    for (std::int64_t number = 0; number < count; ++number) start(number);
  }

  ~Workers() {
    signal_all(SIGKILL);
    for (Worker& worker : all_)
      if (!worker.status) waitpid(worker.process, nullptr, 0);
  }

  int wait(const lab::StopOnSignal& signals) {
    std::optional<Clock::time_point> bad_since, passed_on;
    bool told = false;
    while (std::ranges::any_of(all_, [](const Worker& w) { return !w.status; })) {
      listen(milliseconds(50));
      if (signals.requested() && !passed_on) {
        signal_all(SIGTERM);
        signal_all(SIGCONT);  // a stopped worker would not handle the signal
        passed_on = Clock::now();
      }
      if (passed_on)
        for (const Worker& worker : all_) {
          // A running worker may have to finish an evaluation or write a checkpoint.
          const auto patience = is_stopped(worker.process) ? grace_ : 10 * grace_;
          if (!worker.status && Clock::now() - *passed_on > patience) kill(worker.process, SIGKILL);
        }
      for (Worker& worker : all_) reap(worker);
      const bool bad = std::ranges::any_of(
          all_, [](const Worker& w) { return w.status && !w.ended_with_all(); });
      if (bad && !bad_since) bad_since = Clock::now();
      if (!bad_since) continue;
      if (Clock::now() - *bad_since > kMoment && !told) {
        signal_all(SIGTERM);
        told = true;
      }
      if (Clock::now() - *bad_since > kMoment + kLastMoment) signal_all(SIGKILL);
    }
    while (listen(milliseconds(0))) continue;  // drain the pipes
    for (const Worker& worker : all_)          // number 0 first
      if (worker.code() != kDone) return worker.code();
    return kDone;
  }

 private:
  void start(std::int64_t number) {
    Worker worker;
    worker.number = number;
    int ends[2] = {-1, -1};
    if (number > 0 && pipe2(ends, O_CLOEXEC) != 0) fail("keel train: pipe");
    setenv("RANK", std::to_string(number).c_str(), 1);
    setenv("LOCAL_RANK", std::to_string(number).c_str(), 1);
    std::vector<char*> pointers;
    for (std::string& word : words_) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    const pid_t parent = getpid();
    worker.process = fork();
    if (worker.process < 0) fail("keel train: fork");
    if (worker.process == 0) {  // only async-signal-safe calls after fork
      prctl(PR_SET_PDEATHSIG, SIGTERM);
      if (getppid() != parent) _exit(kProcesses);
      if (number > 0) {
        const int nowhere = open("/dev/null", O_WRONLY);
        dup2(nowhere, STDOUT_FILENO);
        dup2(ends[1], STDERR_FILENO);
      }
      execv("/proc/self/exe", pointers.data());
      _exit(127);
    }
    if (number > 0) {
      close(ends[1]);
      worker.errors = ends[0];
    }
    all_.push_back(std::move(worker));
  }

  /// Forwards the workers' errors line by line. Returns false if there was nothing to read.
  bool listen(milliseconds limit) {
    std::vector<pollfd> pipes;
    std::vector<Worker*> owners;
    for (Worker& worker : all_)
      if (worker.errors >= 0) {
        pipes.push_back({worker.errors, POLLIN, 0});
        owners.push_back(&worker);
      }
    if (poll(pipes.data(), pipes.size(), int(limit.count())) <= 0) return false;
    for (std::size_t i = 0; i < pipes.size(); ++i) {
      if (pipes[i].revents == 0) continue;
      char bytes[4096];
      const ssize_t count = read(pipes[i].fd, bytes, sizeof bytes);
      if (count <= 0) {
        if (count < 0 && errno == EINTR) continue;
        if (!owners[i]->line.empty()) say(*owners[i], owners[i]->line);
        close(owners[i]->errors);
        owners[i]->errors = -1;
        continue;
      }
      std::string& line = owners[i]->line += std::string(bytes, std::size_t(count));
      for (std::size_t end; (end = line.find('\n')) != std::string::npos; line.erase(0, end + 1))
        say(*owners[i], line.substr(0, end));
    }
    return true;
  }

  static void say(const Worker& worker, const std::string& text) {
    put(stderr, fmt::format("process {}: {}\n", worker.number, text));
  }

  static void reap(Worker& worker) {
    int status = 0;
    if (worker.status || waitpid(worker.process, &status, WNOHANG) != worker.process) return;
    worker.status = status;
    if (WIFSIGNALED(status))
      put(stderr,
          fmt::format("keel: process {} (pid {}) was ended by signal {} ({})\n", worker.number,
                      worker.process, WTERMSIG(status), strsignal(WTERMSIG(status))));
    else if (WEXITSTATUS(status) != kDone)
      put(stderr,
          fmt::format("keel: process {} ended with code {}\n", worker.number, WEXITSTATUS(status)));
  }

  void signal_all(int number) {
    for (const Worker& worker : all_)
      if (!worker.status) kill(worker.process, number);
  }

  std::vector<std::string> words_;
  const milliseconds grace_;  ///< the time workers have to end together after a signal
  std::vector<Worker> all_;
};

}  // namespace

int train_with_workers(const std::vector<std::string>& arguments, std::int64_t workers,
                       const lab::TrainOptions& options) {
  Workers all(arguments, workers, options);
  const lab::StopOnSignal signals;  // a second signal kills this process, and with it the workers
  return all.wait(signals);
}

}  // namespace keel::cli
