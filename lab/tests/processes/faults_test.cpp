// Processes that die, hang, never come or have other options: the others fail in time with an error that names them.

#include <gtest/gtest.h>
#include <algorithm>

#include "lab/tests/processes/train_support.h"

namespace keel::test {
namespace {

constexpr int kUsage = 2, kInterrupted = 5, kProcesses = 6;
constexpr auto kInTime = 30s;  ///< for a timeout of 6 s, on a busy machine

class FaultsTest : public TrainTest {
 protected:
  const std::string endless_ = kSmall + "--epochs 100000 --checkpoint-every 5 --timeout " +
                               kSeconds + " --run " + (folder / "run").string();

  /// Starts both ranks and waits until they have taken some steps.
  void set_off() {
    for (int rank = 0; rank < 2; ++rank) ranks.push_back(start_rank(rank, 2, endless_));
    wait_for_step(folder / "run", 8, *ranks[0]);
  }
  static std::ptrdiff_t sockets_of(const Program& program) {
    const fs::path open = "/proc/" + std::to_string(program.process()) + "/fd";
    std::error_code gone;
    return std::count_if(fs::directory_iterator(open, gone), {}, [&](const auto& file) {
      return contains(fs::read_symlink(file, gone).string(), "socket:");
    });
  }
  static std::pair<pid_t, pid_t> workers_of(const Program& program) {
    const std::string process = std::to_string(program.process());
    std::pair<pid_t, pid_t> found{0, 0};
    std::ifstream("/proc/" + process + "/task/" + process + "/children") >> found.first >>
        found.second;
    EXPECT_GT(found.second, 0);
    return found;
  }
  void expect_blamed(int survivor, const std::string& words) {
    EXPECT_EQ(ranks[std::size_t(survivor)]->wait(kInTime), kProcesses)
        << ranks[std::size_t(survivor)]->log();
    EXPECT_TRUE(contains(ranks[std::size_t(survivor)]->log(), words))
        << ranks[std::size_t(survivor)]->log();
  }

  std::vector<Running> ranks;
};

TEST_F(FaultsTest, AKilledRankIsNamedAndTheRunGoesOn) {
  set_off();
  ranks[1]->send(SIGKILL);
  expect_blamed(0, "process 1 gives no sign of life");
  const int reached = losses(folder / "run").rbegin()->first;

  // The last checkpoint is complete. A signal to one rank stops both after the same step.
  port = lab::free_port();
  const std::string resume = "--resume " + (folder / "run").string();
  const Running first = start_rank(0, 2, resume), second = start_rank(1, 2, resume);
  wait_for_step(folder / "run", reached + 5, *first);
  second->send(SIGTERM);
  EXPECT_EQ(first->wait(kInTime), kInterrupted) << first->log();
  EXPECT_EQ(second->wait(kInTime), kInterrupted) << second->log();
  EXPECT_TRUE(contains(first->log(), "resuming after step")) << first->log();
  EXPECT_EQ(result(folder / "run").at("status"), "interrupted");
  const int last = result(folder / "run").at("steps");
  EXPECT_TRUE(fs::exists(folder / "run" / "checkpoints" /
                         ("step-" + std::string(8 - std::to_string(last).size(), '0') +
                          std::to_string(last) + ".json")));
}

TEST_F(FaultsTest, AHangingRankIsNamed) {
  set_off();
  ranks[1]->send(SIGSTOP);
  expect_blamed(0, "process 1 gives no sign of life");
}

TEST_F(FaultsTest, ARankThatHangsWithTheStoreIsNamed) {
  set_off();
  ranks[0]->send(SIGSTOP);
  expect_blamed(1, "process 0 at 127.0.0.1");
}

TEST_F(FaultsTest, ARankThatHangsWithTheStoreWhileOthersJoinIsNamed) {
  for (int rank = 0; rank < 2; ++rank) ranks.push_back(start_rank(rank, 3, endless_));
  // The store's client and the mailboxes of the main thread and of the heartbeat are open: now it only waits for rank
  // 2.
  for (const auto deadline = Clock::now() + kInTime; sockets_of(*ranks[1]) < 3;) {
    ASSERT_LT(Clock::now(), deadline) << ranks[1]->log();
    std::this_thread::sleep_for(10ms);
  }
  std::this_thread::sleep_for(500ms);  // the last one is open but not yet accepted
  ranks[0]->send(SIGSTOP);
  expect_blamed(1, "process 0 at 127.0.0.1");
}

TEST_F(FaultsTest, ARankThatDiesWithTheStoreIsNamed) {
  set_off();
  ranks[0]->send(SIGKILL);
  expect_blamed(1, "process 0 at 127.0.0.1");
}

TEST_F(FaultsTest, OptionsMustBeTheSame) {
  const std::string options = kSmall + "--timeout 20 --run " + (folder / "run").string();
  const Running first = start_rank(0, 2, options);
  const Running second = start_rank(1, 2, options + " --weight-decay 0.001");
  for (Program* one : {first.get(), second.get()}) {
    EXPECT_EQ(one->wait(kInTime), kProcesses) << one->log();
    EXPECT_TRUE(contains(one->log(), "process 1 was given weight_decay 0.001, process 0 0.0005"))
        << one->log();
  }
}

TEST_F(FaultsTest, AnErrorOfOneIsToldToAll) {
  const std::string options = kSmall + "--timeout 20 --run " + (folder / "run").string();
  const Running first = start_rank(0, 2, options);
  const Running second = start_rank(1, 2, options + " --source cifar10 --path /nowhere");
  EXPECT_EQ(second->wait(kInTime), 3) << second->log();
  EXPECT_EQ(first->wait(kInTime), kProcesses) << first->log();
  EXPECT_TRUE(contains(first->log(), "process 1 stopped: ")) << first->log();
  EXPECT_TRUE(contains(first->log(), "/nowhere")) << first->log();
}

TEST_F(FaultsTest, TheirNumberMustBeTheSame) {
  const Running first = start_rank(0, 2, kSmall + "--timeout 20 --run " + (folder / "r").string());
  const Running second = start_rank(1, 3, kSmall + "--timeout 20");
  EXPECT_EQ(first->wait(kInTime), kProcesses) << first->log();
  EXPECT_EQ(second->wait(kInTime), kProcesses) << second->log();
  EXPECT_TRUE(contains(first->log() + second->log(), "was told WORLD_SIZE 3")) << first->log();
}

TEST_F(FaultsTest, WhoNeverComesIsNamed) {
  const std::string options = kSmall + "--timeout 2 --run " + (folder / "run").string();
  const Running alone = start_rank(0, 3, options);
  EXPECT_EQ(alone->wait(kInTime), kProcesses) << alone->log();
  EXPECT_TRUE(
      contains(alone->log(), "expected 3 processes (WORLD_SIZE) within 2 s, without process 1, 2"))
      << alone->log();
  EXPECT_FALSE(fs::exists(folder / "run"));
}

TEST_F(FaultsTest, AMasterThatIsNotThereIsNamed) {
  const Running lost = start_rank(1, 2, kSmall + "--timeout 2");
  EXPECT_EQ(lost->wait(kInTime), kProcesses) << lost->log();
  EXPECT_TRUE(
      contains(lost->log(), "process 1 found no store at 127.0.0.1:" + std::to_string(port)))
      << lost->log();
}

TEST_F(FaultsTest, HalfAnEnvironmentIsAWrongCommandLine) {
  const Running one = start(kSmall, {{"RANK", "1"}});
  EXPECT_EQ(one->wait(kInTime), kUsage);
  EXPECT_TRUE(contains(one->log(), "WORLD_SIZE")) << one->log();
  const Running other = start(kSmall + "--distributed");
  EXPECT_EQ(other->wait(kInTime), kUsage);
}

/// Local addresses, in /proc's hexadecimal, on which a process listens.
std::vector<std::string> listening(pid_t process) {
  const std::string folder = "/proc/" + std::to_string(process);
  std::string sockets;
  for (const auto& file : fs::directory_iterator(folder + "/fd"))
    sockets += fs::read_symlink(file).string() + " ";
  std::vector<std::string> addresses;
  for (const char* table : {"/net/tcp", "/net/tcp6"}) {
    std::ifstream lines(folder + table);
    std::string line;
    for (std::getline(lines, line); std::getline(lines, line);) {
      const auto words = split(line);  // number, local address, remote address, state, ..., inode
      if (words.size() > 9 && words[3] == "0A" && contains(sockets, "socket:[" + words[9] + "]"))
        addresses.push_back(words[1].substr(0, words[1].find(':')));
    }
  }
  return addresses;
}

TEST_F(FaultsTest, WorkersOfOneMachineAreNotToBeReachedFromAnother) {
  const Running all = start(endless_ + " --workers 2");
  wait_for_step(folder / "run", 3, *all);
  const auto [first, second] = workers_of(*all);
  for (const pid_t process : {all->process(), first, second})
    for (const std::string& address : listening(process))
      EXPECT_TRUE(contains(address, "0100007F")) << address;  // 127.0.0.1, also as IPv6 writes it
  EXPECT_FALSE(listening(first).empty());                     // the store, and Gloo
  all->send(SIGTERM);
  EXPECT_EQ(all->wait(kInTime), kInterrupted) << all->log();
}

TEST_F(FaultsTest, AStoppedWorkerIsWokenToEnd) {
  const Running all = start(endless_ + " --workers 2");
  wait_for_step(folder / "run", 3, *all);
  const auto [first, second] = workers_of(*all);
  kill(second, SIGSTOP);
  all->send(SIGTERM);
  EXPECT_EQ(all->wait(kInTime), kInterrupted) << all->log();
  EXPECT_EQ(result(folder / "run").at("status"), "interrupted");
}

TEST_F(FaultsTest, WorkersThatDoNotEndAreKilled) {
  const Running all = start(endless_ + " --workers 2");
  wait_for_step(folder / "run", 3, *all);
  const auto [first, second] = workers_of(*all);
  all->send(SIGTERM);
  for (const auto deadline = Clock::now() + kInTime;
       all->poll() == Program::kRunning && Clock::now() < deadline;) {
    for (const pid_t worker : {first, second}) kill(worker, SIGSTOP);  // woken, it stops again
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_EQ(all->poll(), kProcesses) << all->log();
  EXPECT_TRUE(contains(all->log(), "was ended by signal 9")) << all->log();
}

TEST_F(FaultsTest, WorkersAreWatchedOver) {
  const Running all = start(endless_ + " --workers 2");
  wait_for_step(folder / "run", 3, *all);
  const auto [first, second] = workers_of(*all);
  kill(second, SIGKILL);
  EXPECT_EQ(all->wait(kInTime), kProcesses) << all->log();
  EXPECT_TRUE(
      contains(all->log(), "process 1 (pid " + std::to_string(second) + ") was ended by signal 9"))
      << all->log();
  EXPECT_TRUE(contains(all->log(), "process 1 gives no sign of life")) << all->log();
  EXPECT_NE(kill(first, 0), 0);
}

}  // namespace
}  // namespace keel::test
