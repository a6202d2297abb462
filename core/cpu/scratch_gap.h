#pragma once

// Arrays that share one allocation. AddressSanitizer only checks the ends of an allocation, so in
// its builds a poisoned gap follows each array to detect overruns from one into the next.

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

/// The space that an array of `count` elements takes.
template <typename T>
constexpr std::int64_t with_gap(std::int64_t count) {
  return count + kGapBytes / std::int64_t(sizeof(T));
}

/// Returns the next array and advances `next` past it. Always inlined: it is used in code for
/// several instruction sets, of which the linker would keep only one copy.
template <typename T>
[[gnu::always_inline]] inline T* take(T*& next, std::int64_t count) {
  T* const start = next;
  next += with_gap<T>(count);
#ifdef KEEL_SCRATCH_GAPS
  ASAN_UNPOISON_MEMORY_REGION(start, std::size_t(count) * sizeof(T));  // gaps of an earlier layout
  ASAN_POISON_MEMORY_REGION(start + count, std::size_t(kGapBytes));
#endif
  return start;
}

}  // namespace keel::cpu
