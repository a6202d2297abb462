#pragma once

// How processes know of each other when their collectives do not say: each writes a sign of life to
// the store, and where it stands. Whoever waits in vain reads them and names the one who is missing.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "lab/processes/mailbox.h"

namespace keel::lab {

class Heartbeat {
 public:
  struct Options {
    std::int64_t process = 0, size = 1;
    std::chrono::milliseconds timeout{300'000};
    std::string keeper = "process 0";  ///< who keeps the store, in words
    /// Called on a thread of its own when the process waits for others who will not come and cannot
    /// be woken (a queue on a GPU, a store that hangs). It must end the process.
    std::function<void(const std::string&)> lost;
  };

  Heartbeat(std::unique_ptr<Mailbox> mailbox, Options options);
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  /// Where this process stands, for the others to read: the step, and the sums it has begun.
  void at(std::int64_t step);
  void begin_sum();

  /// While it lives, this process does nothing but wait for others.
  class Waiting {
   public:
    explicit Waiting(Heartbeat& heart);
    ~Waiting();
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    Heartbeat& heart_;
  };

  /// Who is to blame for a collective that failed, in words: who raised the alarm, who gives no sign of
  /// life, or (`stuck`) who has begun fewer sums than this process and begins no more. Empty: nobody.
  /// Takes a few beats.
  std::string blame(bool stuck);

  /// Tells all others why this process stops, unless somebody has told before: what all of them then
  /// have from blame(). Waits until they have read it.
  void raise_alarm(const std::string& why);
  /// What has been told, if anything.
  std::string alarm() const;

  std::chrono::milliseconds beat() const;
  std::chrono::milliseconds longest_blame() const;

 private:
  struct State;
  std::shared_ptr<State> state_;  ///< shared with threads that may hang in a store that does
};

}  // namespace keel::lab
