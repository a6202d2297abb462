#include "keel/executor.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

namespace keel::testing {
namespace {

TEST(Executor, EveryIndexOnce) {
  for (const Executor& executor : {serial(), threads(1), threads(2), threads(7), threads()})
    for (const std::int64_t count : {0, 1, 2, 5, 1000}) {
      std::vector<std::atomic<int>> seen(static_cast<std::size_t>(count));
      executor(count, [&](std::int64_t i) { ++seen[std::size_t(i)]; });
      for (const auto& times : seen) EXPECT_EQ(times, 1);
    }
}

TEST(Executor, SerialStaysOnTheCallingThreadAndInOrder) {
  const std::thread::id caller = std::this_thread::get_id();
  std::vector<std::int64_t> order;
  serial()(5, [&](std::int64_t i) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    order.push_back(i);
  });
  EXPECT_EQ(order, (std::vector<std::int64_t>{0, 1, 2, 3, 4}));
}

TEST(Executor, AnErrorReachesTheCaller) {
  for (const Executor& executor : {serial(), threads(3)})
    EXPECT_THROW(executor(100,
                          [](std::int64_t i) {
                            if (i == 42) throw std::runtime_error("42");
                          }),
                 std::runtime_error);
}

}  // namespace
}  // namespace keel::testing
