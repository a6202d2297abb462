#include "lab/processes/heartbeat.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <optional>
#include <sstream>
#include <thread>
#include <vector>

namespace keel::lab {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr const char* kAlarm = "alarm";
constexpr int kBeatsOfSilence = 4;  ///< after this many a process counts as dead

std::string key_of(std::int64_t process) { return "beat/" + std::to_string(process); }

struct Sign {
  std::int64_t beats = -1, step = 0, sums = 0;  ///< beats -1: no sign of life yet
};

std::string written(const Sign& sign) {
  return fmt::format("{} {} {}", sign.beats, sign.step, sign.sums);
}

Sign read_sign(const std::optional<std::string>& text) {
  Sign sign;
  if (text) std::istringstream(*text) >> sign.beats >> sign.step >> sign.sums;
  return sign;
}

}  // namespace

struct Heartbeat::State {
  std::unique_ptr<Mailbox> mailbox;  // used only by the heartbeat thread
  Options options;
  milliseconds beat;

  mutable std::mutex mutex;
  std::condition_variable changed;
  bool ending = false;
  std::deque<std::packaged_task<std::string()>> tasks;  // for the heartbeat thread
  Sign mine;
  std::optional<Clock::time_point> waiting_since;
  Clock::time_point last_answer = Clock::now();  // of the store
  std::string alarm, store_error;

  std::thread beating, guarding;
  std::promise<void> beating_is_over;

  /// Writes one sign of life and checks for an alarm. Returns only if the store answered.
  void send() {
    Sign sign;
    {
      const std::lock_guard lock(mutex);
      ++mine.beats;
      sign = mine;
    }
    mailbox->set(key_of(options.process), written(sign));
    const auto told = mailbox->get(kAlarm);
    const std::lock_guard lock(mutex);
    last_answer = Clock::now();
    if (told) alarm = *told;
  }

  void run() {
    std::unique_lock lock(mutex);
    while (!ending) {
      lock.unlock();
      try {
        if (store_error.empty()) send();
      } catch (const std::exception& error) {  // permanent: a lost store does not come back
        const std::lock_guard guard(mutex);
        store_error = error.what();
      }
      lock.lock();
      changed.wait_for(lock, beat, [&] { return ending || !tasks.empty(); });
      while (!tasks.empty()) {
        auto task = std::move(tasks.front());
        tasks.pop_front();
        lock.unlock();
        task();
        lock.lock();
      }
    }
    tasks.clear();  // breaks the promises of waiting callers
  }

  std::vector<Sign> signs() {
    std::vector<Sign> all;
    for (std::int64_t process = 0; process < options.size; ++process)
      all.push_back(read_sign(mailbox->get(key_of(process))));
    return all;
  }

  std::string gone() const { return options.keeper + ", which keeps the store, is gone"; }

  /// Runs on the heartbeat thread.
  std::string look(bool stuck) {
    const auto known = [&]() -> std::string {
      const std::lock_guard lock(mutex);
      return !alarm.empty() ? alarm : !store_error.empty() ? gone() : "";
    };
    if (const auto why = known(); !why.empty()) return why;
    try {
      const auto before = signs();
      for (int i = 0; i < kBeatsOfSilence; ++i) {
        std::this_thread::sleep_for(beat);
        send();
        if (const auto why = known(); !why.empty()) return why;
      }
      return verdict(before, signs(), stuck);
    } catch (const std::exception&) {
      const auto why = known();
      return !why.empty() ? why : gone();
    }
  }

  std::string verdict(const std::vector<Sign>& before, const std::vector<Sign>& now, bool stuck) {
    Sign own;
    {
      const std::lock_guard lock(mutex);
      own = mine;
    }
    std::string silent, behind;
    for (std::size_t i = 0; i < now.size(); ++i) {
      if (std::int64_t(i) == options.process) continue;
      const auto add = [](std::string& list, const std::string& item) {
        list += (list.empty() ? "" : "; ") + item;
      };
      if (now[i].beats < 0)
        add(silent, fmt::format("process {} has never given a sign of life", i));
      else if (now[i].beats == before[i].beats)
        add(silent,
            fmt::format("process {} gives no sign of life (last at step {})", i, now[i].step));
      else if (now[i].sums == before[i].sums && now[i].sums < own.sums)
        add(behind,
            fmt::format("process {} lives but does not move (step {}, sum {}; this one: step {}, "
                        "sum {})",
                        i, now[i].step, now[i].sums, own.step, own.sums));
    }
    if (!silent.empty()) return silent;
    return stuck ? behind : "";
  }

  /// Runs a task on the heartbeat thread. Returns nothing if that thread hangs in the store.
  std::optional<std::string> ask(std::function<std::string()> task, milliseconds limit) {
    std::packaged_task<std::string()> packaged(std::move(task));
    auto answer = packaged.get_future();
    {
      const std::lock_guard lock(mutex);
      tasks.push_back(std::move(packaged));
    }
    changed.notify_all();
    if (answer.wait_for(limit) != std::future_status::ready) return std::nullopt;
    try {
      return answer.get();
    } catch (const std::future_error&) {  // the thread ended first
      return std::nullopt;
    }
  }

  /// Watches the waiting thread. It never touches the store, so it cannot hang there.
  void guard(const std::weak_ptr<State>& self) {
    std::unique_lock lock(mutex);
    while (!changed.wait_for(lock, beat, [&] { return ending; })) {
      if (!waiting_since) continue;
      // A collective with its own, shorter timeout reports the problem itself.
      const auto waited = Clock::now() - *waiting_since;
      const bool told = !alarm.empty() && waited > 2 * kBeatsOfSilence * beat;
      if (waited <= options.timeout - kBeatsOfSilence * beat && !told) continue;
      lock.unlock();
      const auto why = ask(
          [self] {
            const auto state = self.lock();
            return state ? state->look(/*stuck=*/true) : std::string();
          },
          4 * kBeatsOfSilence * beat);
      lock.lock();
      if (ending || !waiting_since) continue;
      if (why && why->empty()) {  // all are alive and make progress, so keep waiting
        waiting_since = Clock::now();
        continue;
      }
      lock.unlock();
      options.lost(why ? *why : does_not_answer());
      return;
    }
  }

  std::string does_not_answer() const {
    return options.keeper + ", which keeps the store, does not answer";
  }
};

Heartbeat::Heartbeat(std::unique_ptr<Mailbox> mailbox, Options options)
    : state_(std::make_shared<State>()) {
  State& state = *state_;
  state.mailbox = std::move(mailbox);
  state.options = std::move(options);
  state.beat = std::clamp(state.options.timeout / 40, milliseconds(50), milliseconds(1000));
  state.beating = std::thread([shared = state_] {
    shared->run();
    shared->beating_is_over.set_value();
  });
  if (state.options.lost)
    state.guarding =
        std::thread([shared = state_] { shared->guard(std::weak_ptr<State>(shared)); });
}

Heartbeat::~Heartbeat() {
  State& state = *state_;
  {
    const std::lock_guard lock(state.mutex);
    state.ending = true;
  }
  state.changed.notify_all();
  if (state.guarding.joinable()) state.guarding.join();
  // A thread that hangs in the store is detached, since the process is about to end.
  const auto over = state.beating_is_over.get_future();
  if (over.wait_for(4 * state.beat) == std::future_status::ready)
    state.beating.join();
  else
    state.beating.detach();
}

void Heartbeat::at(std::int64_t step) {
  const std::lock_guard lock(state_->mutex);
  state_->mine.step = step;
}

void Heartbeat::begin_sum() {
  const std::lock_guard lock(state_->mutex);
  ++state_->mine.sums;
}

Heartbeat::Waiting::Waiting(Heartbeat& heart) : heart_(heart) {
  const std::lock_guard lock(heart_.state_->mutex);
  heart_.state_->waiting_since = Clock::now();
}

Heartbeat::Waiting::~Waiting() {
  const std::lock_guard lock(heart_.state_->mutex);
  heart_.state_->waiting_since.reset();
}

std::string Heartbeat::blame(bool stuck) {
  const auto state = state_;
  {
    const std::lock_guard lock(state->mutex);
    if (Clock::now() - state->last_answer > 2 * kBeatsOfSilence * state->beat &&
        state->alarm.empty() && state->store_error.empty())
      return state->does_not_answer();
  }
  const auto why = state->ask([state, stuck] { return state->look(stuck); }, longest_blame());
  return why ? *why : state->does_not_answer();
}

void Heartbeat::raise_alarm(const std::string& why) {
  const auto state = state_;
  const auto told = [state, why] {
    try {
      if (!state->mailbox->get(kAlarm)) state->mailbox->set(kAlarm, why);
      for (int i = 0; i < 2; ++i) {  // by then all others have read it, since each has beaten once
        std::this_thread::sleep_for(state->beat);
        state->send();
      }
    } catch (const std::exception&) {  // no process left to tell, or the store is gone
    }
    return std::string();
  };
  state->ask(told, longest_blame());
}

std::string Heartbeat::alarm() const {
  const std::lock_guard lock(state_->mutex);
  return state_->alarm;
}

milliseconds Heartbeat::beat() const { return state_->beat; }

milliseconds Heartbeat::longest_blame() const { return 3 * kBeatsOfSilence * state_->beat; }

}  // namespace keel::lab
