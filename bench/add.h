#pragma once

#include <benchmark/benchmark.h>

#include <exception>
#include <string>
#include <vector>

namespace keel::bench {

/// How long and how often each benchmark is timed, and whether the slow cells are there at all.
struct Effort {
  bool full = false;  ///< for the record: minutes, every cell
  int repetitions() const { return full ? 7 : 3; }
  double seconds() const { return full ? 0.05 : 0.02; }  ///< a repetition's, at least
};
inline Effort& effort() {
  static Effort chosen;
  return chosen;
}

/// The names in the order they were registered; repetitions that take turns end in any order.
inline std::vector<std::string>& registered() {
  static std::vector<std::string> names;
  return names;
}

/// Says on stderr what is being timed: on a terminal in one line that changes, in a log now and then.
void show_progress(const std::string& name);

/// Registers `body` under `name`; an exception in it fails that benchmark and the run.
template <typename Body>
void add(const std::string& name, Body body) {
  registered().push_back(name);
  benchmark::RegisterBenchmark(name.c_str(),
                               [name, body](benchmark::State& state) mutable {
                                 show_progress(name);
                                 try {
                                   body(state);
                                 } catch (const std::exception& error) {
                                   state.SkipWithError(error.what());
                                 }
                               })
      ->UseRealTime()
      ->MinTime(effort().seconds())
      ->Repetitions(effort().repetitions())
      ->ReportAggregatesOnly();
}

}  // namespace keel::bench
