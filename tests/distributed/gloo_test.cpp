// Starts the processes of gloo_rank.cpp and waits for them, but not for ever.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

extern char** environ;

namespace keel::test {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

struct Rank {
  pid_t process = -1;
  std::string log;
  int status = -1;  ///< -1 while it runs
};

class Ranks {
 public:
  Ranks() {
    std::string pattern = (std::filesystem::temp_directory_path() / "keel_gloo_XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder");
    folder_ = pattern;
  }
  ~Ranks() {
    for (const Rank& rank : ranks_)
      if (rank.status == -1) {
        kill(rank.process, SIGKILL);
        waitpid(rank.process, nullptr, 0);
      }
    std::filesystem::remove_all(folder_);
  }

  void start(int size, const std::string& test) {
    for (int rank = 0; rank < size; ++rank) {
      Rank one{-1, folder_ / ("log_" + std::to_string(rank)), -1};
      setenv("KEEL_RANK", std::to_string(rank).c_str(), 1);
      setenv("KEEL_SIZE", std::to_string(size).c_str(), 1);
      setenv("KEEL_STORE", (folder_ / "store").c_str(), 1);
      setenv("OMP_NUM_THREADS", "1", 1);
      std::string program = KEEL_GLOO_RANK, filter = "--gtest_filter=" + test;
      char* arguments[] = {program.data(), filter.data(), nullptr};
      posix_spawn_file_actions_t actions;
      posix_spawn_file_actions_init(&actions);
      posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, one.log.c_str(),
                                       O_WRONLY | O_CREAT | O_TRUNC, 0600);
      posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
      ASSERT_EQ(posix_spawn(&one.process, KEEL_GLOO_RANK, &actions, nullptr, arguments, environ),
                0);
      posix_spawn_file_actions_destroy(&actions);
      ranks_.push_back(one);
    }
  }

  /// Whether this rank ended, and ended well, before the deadline.
  testing::AssertionResult ends_well(std::size_t rank, Clock::duration limit) {
    const auto deadline = Clock::now() + limit;
    Rank& one = ranks_.at(rank);
    while (one.status == -1 && Clock::now() < deadline) {
      int status = 0;
      if (waitpid(one.process, &status, WNOHANG) == one.process)
        one.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      else
        std::this_thread::sleep_for(20ms);
    }
    if (one.status == 0) return testing::AssertionSuccess();
    std::ostringstream log;
    log << std::ifstream(one.log).rdbuf();
    return testing::AssertionFailure()
           << "rank " << rank << (one.status == -1 ? " hangs" : " failed") << ":\n"
           << log.str();
  }

  std::size_t count() const { return ranks_.size(); }

 private:
  std::filesystem::path folder_;
  std::vector<Rank> ranks_;
};

void expect_all_well(int size, const std::string& test) {
  Ranks ranks;
  ranks.start(size, test);
  for (std::size_t rank = 0; rank < ranks.count(); ++rank) EXPECT_TRUE(ranks.ends_well(rank, 300s));
}

TEST(Gloo, TwoProcessesEqualOne) { expect_all_well(2, "Ranks.EqualOneProcess"); }
TEST(Gloo, ThreeProcessesEqualOne) { expect_all_well(3, "Ranks.EqualOneProcess"); }
TEST(Gloo, TwoProcessesHoldTheSameStatistics) {
  expect_all_well(2, "Ranks.HoldTheSameStatisticsToTheLastBit");
}
TEST(Gloo, ThreeProcessesHoldTheSameStatistics) {
  expect_all_well(3, "Ranks.HoldTheSameStatisticsToTheLastBit");
}
TEST(Gloo, ProcessesAreCounted) { expect_all_well(2, "Ranks.AreCountedByTheLayers"); }
TEST(Gloo, OneProcessIsAGroupToo) { expect_all_well(1, "Ranks.EqualOneProcess"); }

// The group's timeout is 5 s; what is asked here is that there is an end at all.
TEST(Gloo, ADeadRankIsAnErrorOnTheOthers) {
  Ranks ranks;
  ranks.start(2, "Faults.ADeadRankIsAnError");
  EXPECT_TRUE(ranks.ends_well(0, 90s));
}
TEST(Gloo, AHangingRankIsAnErrorOnTheOthers) {
  Ranks ranks;
  ranks.start(2, "Faults.AHangingRankIsAnError");
  EXPECT_TRUE(ranks.ends_well(0, 90s));
}

}  // namespace
}  // namespace keel::test
