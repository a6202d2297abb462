#pragma once

#include <benchmark/benchmark.h>

#include <exception>
#include <string>

namespace keel::bench {

/// Registers `body` under `name`; an exception in it fails that benchmark and the run.
template <typename Body>
void add(const std::string& name, Body body) {
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
