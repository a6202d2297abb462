// Checks that AddressSanitizer sees the ends of the core's scratch.

#include "cpu/scratch.h"

#include <gtest/gtest.h>

#include "cpu/scratch_gap.h"

namespace keel::cpu {
namespace {

TEST(Scratch, IsAlignedForTheWidestVectors) {
  for (const std::int64_t count : {0, 1, 3, 16, 1000}) {
    const Scratch<float> scratch(count);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(scratch.data()) % 64, 0) << count;
  }
}

TEST(Scratch, ArraysOfOneAllocationDoNotOverlap) {
  Scratch<double> scratch(2 * with_gap<double>(8));
  double* next = scratch;
  double *const first = take(next, 8), *const second = take(next, 8);
  EXPECT_EQ(first, scratch.data());
  EXPECT_GE(second, first + 8);
  EXPECT_EQ(next, scratch.data() + 2 * with_gap<double>(8));
}

TEST(Scratch, TheSanitizerSeesItsEnds) {
#ifndef KEEL_SCRATCH_GAPS
  GTEST_SKIP() << "built without AddressSanitizer";
#else
  const Scratch<float> alone(5);
  EXPECT_FALSE(__asan_address_is_poisoned(alone.data() + 4));
  EXPECT_TRUE(__asan_address_is_poisoned(alone.data() + 5));
  EXPECT_TRUE(__asan_address_is_poisoned(alone.data() - 1));

  Scratch<double> shared(2 * with_gap<double>(8));
  double* next = shared;
  double *const first = take(next, 8), *const second = take(next, 8);
  EXPECT_TRUE(__asan_address_is_poisoned(first + 8));
  EXPECT_TRUE(__asan_address_is_poisoned(second - 1));
  EXPECT_TRUE(__asan_address_is_poisoned(second + 8));
  // Divided again differently, the whole array is accessible again.
  next = shared;
  double* const whole = take(next, 16);
  for (int i = 0; i < 16; ++i) EXPECT_FALSE(__asan_address_is_poisoned(whole + i)) << i;
#endif
}

}  // namespace
}  // namespace keel::cpu
