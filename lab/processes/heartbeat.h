#pragma once

// Finds out which process is missing when a collective hangs. Each process writes signs of life and its progress to the
// store. A process that waits in vain reads them and names the missing one.

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
    std::string keeper = "process 0";  ///< description of the process that hosts the store
    /// Called on a separate thread when this process waits for others that will not come and cannot be woken (a GPU queue,
    /// a store that hangs). It must end the process.
    std::function<void(const std::string&)> lost;
  };

  Heartbeat(std::unique_ptr<Mailbox> mailbox, Options options);
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  /// Publishes this process's progress: the step, and the sums it has begun.
  void at(std::int64_t step);
  void begin_sum();

  /// Scope in which this process only waits for others.
  class Waiting {
   public:
    explicit Waiting(Heartbeat& heart);
    ~Waiting();
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    Heartbeat& heart_;
  };

  /// Describes who caused a collective to fail: the process that raised the alarm, one without signs of life, or (`stuck`)
  /// one that has begun fewer sums than this process and begins no more. Empty if there is none. Takes a few beats.
  std::string blame(bool stuck);

  /// Tells all others why this process stops, unless an alarm was raised before. They get it from blame(). Waits until they
  /// have read it.
  void raise_alarm(const std::string& why);
  /// The text of the alarm; empty if none was raised.
  std::string alarm() const;

  std::chrono::milliseconds beat() const;
  std::chrono::milliseconds longest_blame() const;

 private:
  struct State;
  std::shared_ptr<State>
      state_;  ///< shared with threads that may outlive this object, stuck in the store
};

}  // namespace keel::lab
