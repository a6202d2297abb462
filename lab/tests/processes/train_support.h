#pragma once

// Runs `keel train` in several processes, as torchrun would start them.

#include <memory>
#include <nlohmann/json.hpp>

#include "lab/processes/loopback.h"
#include "support/program.h"

namespace keel::test {

inline std::vector<std::string> split(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// A small network on small data. The batch is not divisible by 2.
inline const std::string kSmall =
    " --model resnet_small --width 4 --train-limit 150 --test-limit 30 --batch 15 --device cpu "
    "--log-every 1 --norm zca --learning-rate 0.02 ";

class TrainTest : public ::testing::Test {
 protected:
  static constexpr const char* kSeconds = "6";  ///< --timeout for tests that reach it

  using Running = std::unique_ptr<Program>;

  /// Starts `keel train` in an environment without rank variables except those in `set`.
  Running start(const std::string& options, Program::Environment set = {}) {
    for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT",
                             "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RESTART_COUNT"})
      if (!set.count(name)) unsetenv(name);
    set["OMP_NUM_THREADS"] = "1";
    auto words = split(options);
    words.insert(words.begin(), {KEEL_PROGRAM, "train"});
    return std::make_unique<Program>(words, set, folder / ("log_" + std::to_string(started_++)));
  }

  Running start_rank(int rank, int size, const std::string& options) {
    return start(options, {{"RANK", std::to_string(rank)},
                           {"WORLD_SIZE", std::to_string(size)},
                           {"LOCAL_RANK", std::to_string(rank)},
                           {"MASTER_ADDR", "127.0.0.1"},
                           {"MASTER_PORT", std::to_string(port)}});
  }

  /// Runs `keel train` in one process to its end.
  void run_alone(const std::string& options) {
    const Running one = start(options);
    ASSERT_EQ(one->wait(), 0) << one->log();
  }

  /// The loss of every recorded step.
  static std::map<int, double> losses(const fs::path& run) {
    std::map<int, double> found;
    std::ifstream lines(run / "metrics.jsonl");
    for (std::string line; std::getline(lines, line);) {
      const auto record = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
      if (record.is_object() && record.at("kind") == "step")
        found[record.at("step")] = record.at("loss");
    }
    return found;
  }

  static void wait_for_step(const fs::path& run, int step, Program& program) {
    for (const auto deadline = Clock::now() + 120s;;) {
      const auto found = losses(run);
      if (!found.empty() && found.rbegin()->first >= step) return;
      ASSERT_EQ(program.poll(), Program::kRunning) << program.log();
      ASSERT_LT(Clock::now(), deadline) << program.log();
      std::this_thread::sleep_for(20ms);
    }
  }

  static nlohmann::json result(const fs::path& run) {
    std::ifstream file(run / "result.json");
    return nlohmann::json::parse(file);
  }

  testing::TemporaryFolder folder;
  int port = lab::free_port();

 private:
  int started_ = 0;
};

}  // namespace keel::test
