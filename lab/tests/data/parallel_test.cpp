#include "lab/data/sources.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

namespace keel::lab {
namespace {

TEST(InParallel, DoesEachOnce) {
  for (const std::int64_t count : {0, 1, 2, 1000}) {
    std::vector<std::atomic<int>> done(static_cast<std::size_t>(count));
    in_parallel("", count, [&](std::int64_t i) { ++done[std::size_t(i)]; });
    for (const auto& times : done) EXPECT_EQ(times, 1);
  }
}

TEST(InParallel, ReportsOnTheCallingThread) {
  const auto caller = std::this_thread::get_id();
  std::int64_t last = -1;
  int reports = 0;
  in_parallel(
      "waiting", 8,
      [](std::int64_t) { std::this_thread::sleep_for(std::chrono::milliseconds(40)); },
      [&](const std::string& what, std::int64_t done, std::int64_t total) {
        EXPECT_EQ(std::this_thread::get_id(), caller);
        EXPECT_EQ(what, "waiting");
        EXPECT_EQ(total, 8);
        EXPECT_GE(done, last);
        last = done;
        ++reports;
      });
  EXPECT_EQ(last, 8);
  EXPECT_GE(reports, 1);
}

TEST(InParallel, ThrowsTheErrorOfTheLowestNumber) {
  for (int trial = 0; trial < 50; ++trial) {
    std::string message;
    try {
      in_parallel("", 100, [](std::int64_t i) {
        if (i == 40) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        if (i >= 40) throw std::runtime_error(std::to_string(i));
      });
    } catch (const std::runtime_error& error) {
      message = error.what();
    }
    EXPECT_EQ(message, "40");
  }
}

}  // namespace
}  // namespace keel::lab
