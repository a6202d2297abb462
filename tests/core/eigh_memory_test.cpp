// Counts what eigh allocates while it runs, in the allocator of its scratch memory. A separate program, because
// counting replaces AddressSanitizer's allocator, which guards scratch in all other tests.

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "support/solve.h"
#include "support/spectrum_zoo.h"

namespace {

std::atomic<std::int64_t> alive{0}, peak{0};
constexpr std::size_t kHeader = 64;  // holds the size, and keeps the alignment of scratch

}  // namespace

void* operator new(std::size_t bytes, std::align_val_t alignment) {
  if (std::size_t(alignment) > kHeader) throw std::bad_alloc();
  const std::size_t whole = (bytes + 2 * kHeader - 1) / kHeader * kHeader;
  auto* memory = static_cast<char*>(std::aligned_alloc(kHeader, whole));
  if (memory == nullptr) throw std::bad_alloc();
  *reinterpret_cast<std::size_t*>(memory) = bytes;
  const std::int64_t now = alive += std::int64_t(bytes);
  std::int64_t before = peak;
  while (before < now && !peak.compare_exchange_weak(before, now)) {
  }
  return memory + kHeader;
}

void operator delete(void* memory, std::align_val_t) noexcept {
  if (memory == nullptr) return;
  auto* start = static_cast<char*>(memory) - kHeader;
  alive -= std::int64_t(*reinterpret_cast<std::size_t*>(start));
  std::free(start);
}
void operator delete(void* memory, std::size_t, std::align_val_t alignment) noexcept {
  operator delete(memory, alignment);
}

namespace keel::testing {
namespace {

/// Temporary memory does not grow with the batch: a few dozen matrices per thread, one per lane.
TEST(EighMemory, IsAFewMatricesAThread) {
  constexpr std::int64_t kThreads = 2;
  for (const std::int64_t n : {16, 64, 128, 200}) {
    std::int64_t by_batch[2] = {};
    const std::int64_t some =
        n <= 128 ? 256 : 64;  // few small ones are solved another way than many
    for (const std::int64_t batch : {some, 4 * some}) {
      const Batch<float> m = as<float>(random_symmetric(batch, n, 5));
      peak = 0;
      ASSERT_EQ(alive, 0);
      solve(m, threads(kThreads));
      ASSERT_EQ(alive, 0);
      by_batch[batch > some] = peak;
      EXPECT_GT(peak, 0) << "n = " << n;
      EXPECT_LE(peak, kThreads * 48 * (n + 8) * (n + 8) * std::int64_t(sizeof(float)))
          << "n = " << n << ", batch = " << batch;
    }
    EXPECT_LE(by_batch[1], kThreads * by_batch[0]) << "n = " << n;
  }
}

}  // namespace
}  // namespace keel::testing
