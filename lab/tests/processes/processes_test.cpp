// `keel train` in several processes: it computes what one process computes, and ends when another process is missing.

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <torch/version.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "lab/train/checkpoint.h"
#include "lab/train/trainer.h"
#include "support/errors.h"
#include "support/program.h"

namespace keel::test {
namespace {

constexpr int kUsage = 2, kInput = 3, kDiverged = 4, kInterrupted = 5, kProcesses = 6;

/// A small network on small data. The batch is not divisible by 2.
const std::string kSmall =
    " --model resnet_small --width 4 --train-limit 150 --test-limit 30 --batch 15 --log-every 1 "
    "--norm zca --learning-rate 0.02 ";

using Losses = std::map<int, double>;
using Running = std::unique_ptr<Program>;

int free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof name;
  const auto address = reinterpret_cast<sockaddr*>(&name);
  EXPECT_EQ(::bind(socket, address, size), 0);
  ::getsockname(socket, address, &size);
  ::close(socket);
  return ntohs(name.sin_port);
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// The loss of every recorded step.
Losses losses(const fs::path& run) {
  Losses found;
  std::ifstream lines(run / "metrics.jsonl");
  for (std::string line; std::getline(lines, line);) {
    const auto record = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (record.is_object() && record.at("kind") == "step")
      found[record.at("step")] = record.at("loss");
  }
  return found;
}

nlohmann::json result(const fs::path& run) {
  std::ifstream file(run / "result.json");
  return nlohmann::json::parse(file);
}

class ProcessesTest : public ::testing::Test {
 protected:
#ifndef KEEL_GLOO
  void SetUp() override { GTEST_SKIP() << "no Gloo headers (Debian: libgloo-dev)"; }
#endif
  /// Starts `keel train`, after the words `before`, in an environment without rank variables except those in `set`.
  Running start(const std::string& options, Program::Environment set = {},
                std::vector<std::string> words = {}) {
    for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT",
                             "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RESTART_COUNT"})
      unsetenv(name);
    set["OMP_NUM_THREADS"] = "1";
    words.insert(words.end(), {KEEL_PROGRAM, "train"});
    std::istringstream stream("--device " + device + " " + options);
    words.insert(words.end(), std::istream_iterator<std::string>(stream), {});
    return std::make_unique<Program>(words, set, folder / ("log_" + std::to_string(started_++)));
  }
  Running start_rank(int rank, int size, const std::string& options) {
    return start(options, {{"RANK", std::to_string(rank)},
                           {"WORLD_SIZE", std::to_string(size)},
                           {"LOCAL_RANK", std::to_string(rank)},
                           {"MASTER_ADDR", "127.0.0.1"},
                           {"MASTER_PORT", std::to_string(port)}});
  }
  std::vector<Running> start_all(int size, const std::string& options) {
    port = free_port();
    std::vector<Running> all;
    for (int rank = 0; rank < size; ++rank) all.push_back(start_rank(rank, size, options));
    return all;
  }
  void train(const std::string& options, int processes = 0) {
    std::vector<Running> all;
    if (processes == 0)
      all.push_back(start(options));
    else
      all = start_all(processes, options);
    for (const Running& one : all) ASSERT_EQ(one->wait(600s), 0) << one->log();
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

  testing::TemporaryFolder folder;
  int port = 0;
  std::string device = "cpu";

 private:
  int started_ = 0;
};

/// How far rounding changes a run, measured on the run itself.
///
/// A ReLU whose input is within a rounding of zero may be on in one run and off in another. The loss does not show it,
/// but the gradient jumps: by 2e-3 of its norm at one step of `kSmall`, with BatchNorm as well as with whitening. From
/// there on the runs diverge, and how fast depends on data, weights and machine. So no fixed tolerance fits all machines.
class DriftTest : public ProcessesTest {
 protected:
  /// Trains in one process, and four more times with the weights moved a little after the first step.
  ///
  /// Several roundings per step, over some dozens of steps, add up to a few units in the last place of a weight. The
  /// weights are moved by 16 units. A ReLU that roundings can switch is then switched by a move or by its opposite,
  /// unless the move happens not to reach it. That is why there are two moves and their opposites.
  void measure(const std::string& options) {
    const auto whole = folder / "whole";
    train(options + "--checkpoint-every 1 --keep 1000 --run " + whole.string());
    truth = losses(whole);
    for (const int move : {-2, -1, 1, 2}) {
      const auto run = folder / ("moved_" + std::to_string(move));
      const auto checkpoint =
          lab::load_checkpoint(whole / "checkpoints" / "step-00000001.safetensors");
      fs::create_directories(run);
      for (const char* file : {".keel-files", "config.toml", "metrics.jsonl"})
        fs::copy_file(whole / file, run / file);
      lab::save_checkpoint(run / "checkpoints", checkpoint, moved(checkpoint.tensors.tensors, move),
                           /*keep=*/1);
      train("--resume " + run.string());
      double largest = 0;
      for (const auto& [step, loss] : losses(run)) {
        largest = std::max(largest, std::abs(loss - truth.at(step)));
        grown_[step] = std::max(grown_[step], largest);
      }
    }
  }

  /// The loss is the mean over a batch after some twenty layers: a few units in its last place. The network amplifies
  /// roundings as it amplifies a move, by up to twice as much: two ReLUs may switch in two of the runs, or both in one.
  double allowed(int step) const { return 8 * kLossUnit + 4 * grown_.at(step); }

  /// The largest difference from the run of one process, relative to the allowed one.
  double drift(const Losses& found) const {
    double largest = found.size() == truth.size() ? 0 : INFINITY;
    for (const auto& [step, loss] : truth) {
      const double share =
          found.count(step) ? std::abs(found.at(step) - loss) / allowed(step) : INFINITY;
      if (!std::isnan(largest) && !(share <= largest)) largest = share;  // NaN stays
    }
    return largest;
  }

  Losses truth;

 private:
  static constexpr double kLossUnit = 0x1p-22;  ///< the last place of a float from 2 to 4

  static lab::NamedTensors moved(const std::map<std::string, torch::Tensor>& all, int move) {
    torch::manual_seed(std::uint64_t(std::abs(move)));
    const double size = std::copysign(0x1p-19, move);
    lab::NamedTensors tensors;
    for (const auto& [name, tensor] : all) {
      const bool weight = tensor.is_floating_point() && !name.starts_with(lab::kMomentum);
      tensors.emplace_back(
          name,
          weight ? tensor + size * tensor * torch::randint_like(tensor, 2).mul(2).sub(1) : tensor);
    }
    return tensors;
  }

  Losses grown_;
};

TEST_F(DriftTest, AnyNumberOfProcessesFollowsOneAlone) {
  const std::string options = kSmall + "--where bn1,layer*.bn2 --group-size 4 --epochs 2 ";
  measure(options);
  ASSERT_EQ(truth.size(), 20u);
  for (int processes : {1, 2, 3}) {
    const auto run = folder / std::to_string(processes);
    train(options + "--run " + run.string(), processes);
    EXPECT_LT(drift(losses(run)), 1) << processes;
    EXPECT_NEAR(result(run).at("test_loss").get<double>(), result(folder / "whole").at("test_loss"),
                allowed(20));
    // An image near the border between two classes may go either way.
    EXPECT_NEAR(result(run).at("test_error").get<double>(),
                result(folder / "whole").at("test_error"), 1.01 / 30);
  }
  // A part that is left out or counted twice is obvious, as are separate BatchNorm statistics.
  const auto apart = folder / "apart";
  train(options + "--no-sync-batchnorm --run " + apart.string(), 2);
  EXPECT_GT(drift(losses(apart)), 100);
  // A run goes on with another number of processes.
  for (const auto& [first, then] : {std::pair(2, 0), std::pair(0, 2)}) {
    const auto run = folder / ("run_" + std::to_string(first));
    train(options + "--checkpoint-every 5 --run " + run.string(), first);
    // Pretends that it was stopped after step 15.
    for (const char* end : {".json", ".safetensors"})
      ASSERT_TRUE(fs::remove(run / "checkpoints" / (std::string("step-00000020") + end)));
    train("--resume " + run.string(), then);
    EXPECT_LT(drift(losses(run)), 1) << first;
    EXPECT_EQ(result(run).at("steps"), 20);
  }
  if (!fs::exists(KEEL_TORCHRUN)) GTEST_SKIP() << "no torchrun (Debian: python3-torch)";
  std::vector<std::string> words{KEEL_TORCHRUN, "--rdzv_backend=c10d",
                                 "--rdzv_endpoint=localhost:0", "--nproc_per_node=2"};
#if TORCH_VERSION_MAJOR < 2  // it trips over Python 3.11, unless these options name a process
  words.insert(words.end(), {"--redirects=9:1", "--tee=9:1"});
#endif
  words.insert(
      words.end(),
      {"--no_python", "--"});  // without it Python 3.12 takes --run for torchrun's --run_path
  const auto run = folder / "torchrun";
  const Running both = start(options + "--run " + run.string(), {}, words);
  ASSERT_EQ(both->wait(600s), 0) << both->log();
  EXPECT_TRUE(contains(both->log(), "2 processes over gloo")) << both->log();
  EXPECT_LT(drift(losses(run)), 1);
}

// One GPU is a group of one process, but it uses NCCL.
class NcclTest : public DriftTest {
  void SetUp() override {}
};

TEST_F(NcclTest, GivesTheNumbersOfOneProcess) {
  device = "cuda";
  const std::string options = kSmall + "--deterministic --epochs 3 --no-fused ";
  const Running probe = start(options + "--max-steps 1 --run " + (folder / "probe").string());
  if (probe->wait(300s) != 0 &&
      (contains(probe->log(), "LibTorch sees none") || contains(probe->log(), "has no CUDA")))
    GTEST_SKIP() << "no CUDA device";
  measure(options);
  const auto run = folder / "run";
  port = free_port();
  const Running one = start_rank(0, 1, options + "--run " + run.string());
  ASSERT_EQ(one->wait(300s), 0) << one->log();
  EXPECT_TRUE(contains(one->log(), "1 process over nccl")) << one->log();
  EXPECT_LT(drift(losses(run)), 1);
}

TEST_F(ProcessesTest, ANumberThatIsNotFiniteStopsAllAtTheSameStep) {
  const auto run = folder / "run";
  for (const Running& one :
       start_all(2, kSmall + "--rule analytic --rank full --dead-channels 2 --run " + run.string()))
    EXPECT_EQ(one->wait(), kDiverged) << one->log();
  EXPECT_EQ(result(run).at("failure").at("step"), 1);
  EXPECT_EQ(result(run).at("failure").at("layer"), "bn1");
}

TEST_F(ProcessesTest, AKilledProcessEndsTheOthersAndTheRunGoesOn) {
  const auto run = folder / "run";
  for (const int killed : {0, 1}) {
    const std::string options = killed == 0 ? kSmall + "--epochs 100000 --checkpoint-every 5 --run "
                                            : std::string("--resume ");
    const int before = killed == 0 ? 0 : losses(run).rbegin()->first;
    const auto both = start_all(2, options + run.string());
    wait_for_step(run, before + 8, *both[0]);
    both[std::size_t(killed)]->send(SIGKILL);
    const Running& survivor = both[std::size_t(1 - killed)];
    EXPECT_EQ(survivor->wait(), kProcesses) << survivor->log();
    EXPECT_TRUE(contains(survivor->log(), "process " + std::to_string(1 - killed) +
                                              " of 2 stops, because another one has ended"))
        << survivor->log();
    both[std::size_t(killed)]->wait();
  }
  // A signal to one process stops both after the same step, with a checkpoint.
  const int reached = losses(run).rbegin()->first;
  const auto both = start_all(2, "--resume " + run.string());
  wait_for_step(run, reached + 5, *both[0]);
  for (int i = 0; i < 2; ++i) both[1]->send(SIGTERM);
  for (const Running& one : both) EXPECT_EQ(one->wait(), kInterrupted) << one->log();
  EXPECT_TRUE(contains(both[0]->log(), "resuming after step")) << both[0]->log();
  EXPECT_EQ(lab::newest_checkpoint(run, [](const std::string&) {})->position.step,
            result(run).at("steps"));
}

TEST_F(ProcessesTest, OneThatDoesNotAnswerEndsTheOthersAfterTheTimeout) {
  const auto run = folder / "run";
  const auto both = start_all(2, kSmall + "--epochs 100000 --timeout 5 --run " + run.string());
  wait_for_step(run, 8, *both[0]);
  both[1]->send(SIGSTOP);
  EXPECT_EQ(both[0]->wait(), kProcesses) << both[0]->log();
  EXPECT_TRUE(contains(both[0]->log(), "does not answer")) << both[0]->log();
}

TEST_F(ProcessesTest, OptionsMustBeTheSame) {
  port = free_port();
  const std::string options = kSmall + "--run " + (folder / "run").string();
  const Running first = start_rank(0, 2, options);
  const Running second = start_rank(1, 2, options + " --weight-decay 0.001");
  for (Program* one : {first.get(), second.get()}) EXPECT_EQ(one->wait(), kProcesses) << one->log();
  EXPECT_TRUE(contains(second->log(), "process 1 was given weight_decay 0.001, process 0 0.0005\n"))
      << second->log();
  EXPECT_TRUE(contains(first->log(), "process 1 was given other options")) << first->log();
}

TEST_F(ProcessesTest, WhoNeverComesIsAnErrorAfterTheTimeout) {
  const auto together = start_all(2, kSmall + "--timeout 2 --source cifar10 --path /nowhere");
  for (const Running& one : together) EXPECT_EQ(one->wait(), kInput) << one->log();
  const auto alone = start_all(3, kSmall + "--timeout 2 --run " + (folder / "run").string());
  alone[2]->send(SIGKILL);
  for (const int rank : {0, 1}) {
    EXPECT_EQ(alone[std::size_t(rank)]->wait(), kProcesses) << alone[std::size_t(rank)]->log();
    EXPECT_TRUE(contains(alone[std::size_t(rank)]->log(),
                         "of 3 found not all others at 127.0.0.1:" + std::to_string(port)))
        << alone[std::size_t(rank)]->log();
  }
}

TEST_F(ProcessesTest, AWrongEnvironmentIsAWrongCommandLine) {
  const Running one = start(kSmall, {{"RANK", "1"}});
  EXPECT_EQ(one->wait(), kUsage);
  EXPECT_TRUE(contains(one->log(), "expected the variable WORLD_SIZE beside")) << one->log();
  const auto set = [](const Program::Environment& variables) {
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  };
  set({{"MASTER_ADDR", "node0"}, {"RANK", "0"}, {"WORLD_SIZE", "2"}});
  const auto refused = [](const std::string& said) {
    return testing::refuses({said}, [] { lab::place_from_environment(); });
  };
  EXPECT_TRUE(refused("expected the variable MASTER_PORT beside"));
  for (const auto& [name, value, said] :
       {std::tuple("MASTER_PORT", "0x5", "MASTER_PORT from 1 to 65535, got '0x5'"),
        {"RANK", "2", "expected RANK from 0 to 1, got '2'"},
        {"RANK", "one", "expected RANK from 0 to 1, got 'one'"}}) {
    set({{"MASTER_PORT", "29500"}, {"RANK", "0"}});
    set({{name, value}});
    EXPECT_TRUE(refused(said)) << said;
  }
  set({{"RANK", "0"}});
  EXPECT_EQ(lab::place_from_environment()->size, 2);
  // Too many processes for the batch, or for a layer that trains alone.
  lab::TrainOptions options;
  options.batch = 15;
  const lab::DataSet data = lab::load({.train_limit = 20, .test_limit = 10});
  EXPECT_TRUE(testing::refuses({"batch of at least 16, an image for"},
                               [&] { lab::require_batches(options, data, 16); }));
  options.model.norm = {.kind = "zca", .rule = "power_method"};
  EXPECT_TRUE(testing::refuses({"expected a rule of the library in several processes"},
                               [&] { lab::require_batches(options, data, 2); }));
}

}  // namespace
}  // namespace keel::test
