// Heartbeats of several ranks in one process, with a map as their store.

#include "lab/processes/heartbeat.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <vector>

namespace keel::lab {
namespace {

using namespace std::chrono_literals;

struct Board {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, std::string> words;
  std::map<std::string, int> reads;
  bool gone = false, hangs = false;
};

class BoardMailbox : public Mailbox {
 public:
  explicit BoardMailbox(std::shared_ptr<Board> board) : board_(std::move(board)) {}
  void set(const std::string& key, const std::string& value) override {
    const auto lock = open();
    board_->words[key] = value;
    board_->changed.notify_all();
  }
  std::optional<std::string> get(const std::string& key) override {
    const auto lock = open();
    ++board_->reads[key];
    board_->changed.notify_all();
    const auto found = board_->words.find(key);
    return found == board_->words.end() ? std::nullopt : std::optional(found->second);
  }
  std::int64_t add(const std::string&, std::int64_t) override { return 0; }

 private:
  std::unique_lock<std::mutex> open() {
    std::unique_lock lock(board_->mutex);
    board_->changed.wait(lock, [&] { return !board_->hangs; });
    if (board_->gone) throw std::runtime_error("connection reset");
    return lock;
  }
  std::shared_ptr<Board> board_;
};

class HeartbeatTest : public ::testing::Test {
 protected:
  ~HeartbeatTest() override { set(board_->hangs, false); }

  std::unique_ptr<Heartbeat> heart(std::int64_t rank,
                                   std::function<void(const std::string&)> lost = {}) {
    return std::make_unique<Heartbeat>(std::make_unique<BoardMailbox>(board_),
                                       Heartbeat::Options{.process = rank,
                                                          .size = 3,
                                                          .timeout = timeout_,
                                                          .keeper = "process 0 at here:1",
                                                          .lost = std::move(lost)});
  }
  void set(bool& flag, bool value) {
    const std::lock_guard lock(board_->mutex);
    flag = value;
    board_->changed.notify_all();
  }
  /// Waits until a condition holds on the board, however long that takes on a busy machine.
  void wait_until(const std::function<bool()>& so) {
    std::unique_lock lock(board_->mutex);
    board_->changed.wait(lock, so);
  }
  void wait_for_step(int rank, int step) {
    wait_until([&] {
      const auto written = board_->words.find("beat/" + std::to_string(rank));
      if (written == board_->words.end()) return false;
      std::istringstream sign(written->second);
      int beats = -1, found = -1;
      return bool(sign >> beats >> found) && found == step;
    });
  }
  void start_all(std::function<void(const std::string&)> lost = {}) {
    for (int rank = 0; rank < 3; ++rank) hearts_.push_back(heart(rank, rank == 0 ? lost : nullptr));
    for (int rank = 0; rank < 3; ++rank) wait_for_step(rank, 0);
  }

  std::chrono::milliseconds timeout_ = 2s;
  std::shared_ptr<Board> board_ = std::make_shared<Board>();
  std::vector<std::unique_ptr<Heartbeat>> hearts_;
};

TEST_F(HeartbeatTest, NobodyIsBlamedWhereAllLive) {
  timeout_ = 12s;  // long beats, so that a busy machine misses none
  start_all();
  hearts_[0]->begin_sum();  // ahead of the others, who have not started yet
  EXPECT_EQ(hearts_[0]->blame(/*stuck=*/false), "");
}

TEST_F(HeartbeatTest, WhoIsSilentIsNamedWithItsLastStep) {
  start_all();
  hearts_[2]->at(17);
  wait_for_step(2, 17);
  hearts_[2].reset();
  EXPECT_EQ(hearts_[0]->blame(false), "process 2 gives no sign of life (last at step 17)");
}

TEST_F(HeartbeatTest, WhoNeverCameIsNamed) {
  hearts_.push_back(heart(0));
  EXPECT_EQ(hearts_[0]->blame(false),
            "process 1 has never given a sign of life; process 2 has never given a sign of life");
}

TEST_F(HeartbeatTest, WhoLivesButDoesNotMoveIsNamedByThoseWhoWaited) {
  start_all();
  for (const int rank : {0, 1})
    for (int i = 0; i < 5; ++i) hearts_[std::size_t(rank)]->begin_sum();
  hearts_[0]->at(4);
  hearts_[2]->at(3);
  wait_for_step(2, 3);
  EXPECT_EQ(hearts_[0]->blame(/*stuck=*/true),
            "process 2 lives but does not move (step 3, sum 0; this one: step 4, sum 5)");
}

TEST_F(HeartbeatTest, AnAlarmIsWhatAllOthersSay) {
  start_all();
  hearts_[1]->raise_alarm("process 1 stopped: the disk is full");
  hearts_[1].reset();
  hearts_[2]->raise_alarm("something later");
  for (const int rank : {0, 2})
    EXPECT_EQ(hearts_[std::size_t(rank)]->blame(false), "process 1 stopped: the disk is full");
  set(board_->gone, true);  // what was read before is still known after the store is gone
  EXPECT_EQ(hearts_[0]->blame(false), "process 1 stopped: the disk is full");
}

TEST_F(HeartbeatTest, AStoreThatIsGoneOrHangsIsItsKeepersFault) {
  start_all();
  set(board_->hangs, true);
  EXPECT_EQ(hearts_[1]->blame(false),
            "process 0 at here:1, which keeps the store, does not answer");
  set(board_->gone, true);
  set(board_->hangs, false);
  std::this_thread::sleep_for(3 * hearts_[2]->beat());
  EXPECT_EQ(hearts_[2]->blame(false), "process 0 at here:1, which keeps the store, is gone");
}

TEST_F(HeartbeatTest, WhoWaitsInVainAndCannotWakeIsEnded) {
  std::atomic<int> ended = 0;
  std::string why;
  start_all([&](const std::string& words) {
    why = words;
    ++ended;
  });
  {
    const Heartbeat::Waiting waiting(*hearts_[0]);
    std::this_thread::sleep_for(1s);
    EXPECT_EQ(ended, 0);
    hearts_[2].reset();
    for (int i = 0; i < 100 && ended == 0; ++i) std::this_thread::sleep_for(100ms);
  }
  EXPECT_EQ(ended, 1);
  EXPECT_EQ(why, "process 2 gives no sign of life (last at step 0)");
}

TEST_F(HeartbeatTest, ALongWaitForThoseWhoLiveIsNoFault) {
  timeout_ = 4s;
  std::atomic<int> ended = 0;
  start_all([&](const std::string&) { ++ended; });
  const Heartbeat::Waiting waiting(*hearts_[0]);
  wait_until([&] { return board_->reads["beat/1"] >= 2; });  // a look at the others, and a second
  std::this_thread::sleep_for(3 * hearts_[0]->beat());       // long enough for any effect to show
  EXPECT_EQ(ended, 0);
}

}  // namespace
}  // namespace keel::lab
