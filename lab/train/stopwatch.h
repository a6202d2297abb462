#pragma once

#include <chrono>

namespace keel::lab {

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Time spent in training, pauses left out.
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
  /// Seconds since the last lap; the next one begins.
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

/// Images per second over several laps. The first lap, in which memory is allocated, algorithms are chosen and graphs are
/// captured, counts only until there is a second one.
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
