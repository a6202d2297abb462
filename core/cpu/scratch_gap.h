#pragma once

// Arrays that share one allocation. AddressSanitizer sees the ends of allocations only: in its builds a
// poisoned gap follows each array, so that running out of one into the next is seen as well.

#include <cstddef>
#include <cstdint>

#if defined(__SANITIZE_ADDRESS__)
#define KEEL_SCRATCH_GAPS
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define KEEL_SCRATCH_GAPS
#endif
#endif
#ifdef KEEL_SCRATCH_GAPS
#include <sanitizer/asan_interface.h>
#endif

namespace keel::cpu {

#ifdef KEEL_SCRATCH_GAPS
inline constexpr std::int64_t kGapBytes = 64;  // as scratch is aligned
#else
inline constexpr std::int64_t kGapBytes = 0;
#endif

/// What an array of `count` takes of the allocation.
template <typename T>
constexpr std::int64_t with_gap(std::int64_t count) {
  return count + kGapBytes / std::int64_t(sizeof(T));
}

/// The next array, and `next` moved on behind it. Always inlined: it is used in code for several instruction
/// sets, of which the linker would keep one.
template <typename T>
[[gnu::always_inline]] inline T* take(T*& next, std::int64_t count) {
  T* const start = next;
  next += with_gap<T>(count);
#ifdef KEEL_SCRATCH_GAPS
  ASAN_UNPOISON_MEMORY_REGION(start, std::size_t(count) * sizeof(T));  // cut up otherwise before
  ASAN_POISON_MEMORY_REGION(start + count, std::size_t(kGapBytes));
#endif
  return start;
}

}  // namespace keel::cpu
