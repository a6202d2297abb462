#pragma once

#include <benchmark/benchmark.h>

#include <exception>
#include <string>
#include <vector>

namespace keel::bench {

/// The names in the order they were registered; repetitions that take turns end in any order.
inline std::vector<std::string>& registered() {
  static std::vector<std::string> names;
  return names;
}

/// Registers `body` under `name`; an exception in it fails that benchmark and the run.
template <typename Body>
void add(const std::string& name, Body body) {
  registered().push_back(name);
  benchmark::RegisterBenchmark(name.c_str(),
                               [body](benchmark::State& state) mutable {
                                 try {
                                   body(state);
                                 } catch (const std::exception& error) {
                                   state.SkipWithError(error.what());
                                 }
                               })
      ->UseRealTime()
      ->MinTime(0.05)
      ->Repetitions(7)
      ->ReportAggregatesOnly();
}

}  // namespace keel::bench
