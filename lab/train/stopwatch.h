#pragma once

#include <chrono>

namespace keel::lab {

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Time spent in training, without pauses.
class Stopwatch {
 public:
  void go() {
    if (!running_) since_ = Clock::now();
    running_ = true;
  }
  void pause() {
    if (running_) seconds_ += seconds_since(since_);
    running_ = false;
  }
  /// Seconds since the last lap. Starts the next lap.
  double lap() {
    const bool was_running = running_;
    pause();
    const double seconds = seconds_;
    seconds_ = 0;
    if (was_running) go();
    return seconds;
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point since_{};
  double seconds_ = 0;
  bool running_ = false;
};

/// Images per second over several laps. The first lap includes allocations, choice of algorithms and graph capture,
/// so it counts only until there is a second one.
class Throughput {
 public:
  void add(double images, double seconds) {
    if (laps_++ == 1) images_ = seconds_ = 0;
    images_ += images;
    seconds_ += seconds;
  }
  double per_second() const { return seconds_ > 0 ? images_ / seconds_ : 0; }

 private:
  int laps_ = 0;
  double images_ = 0, seconds_ = 0;
};

}  // namespace keel::lab
