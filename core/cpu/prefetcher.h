#pragma once

// Prefetches what the next tile will read while this one is multiplied. An address may be wrong or
// invalid; that only costs a little time.

#include "activation_tiles.h"

namespace keel::cpu::KEEL_ISA {

/// Hands out the addresses of cache lines. Row k of a line is k * stride bytes further on. Rows are
/// samples if a sample's channels are contiguous, and channels otherwise.
class Prefetcher {
 public:
  std::int64_t stride;

  template <typename T>
  Prefetcher(const Columns<T>& x, std::int64_t channel, std::int64_t width, std::int64_t first,
             const void* fallback, bool wanted)
      : stride(std::int64_t(sizeof(T)) *
               (x.channel_stride == 1 ? x.sample_stride : x.channel_stride)),
        lines_(wanted ? (std::int64_t(sizeof(T)) * (x.channel_stride == 1 ? width : kSamples) +
                         kLine - 1) /
                            kLine
                      : 0),
        fallback_(static_cast<const char*>(fallback)) {
    add(x, channel, first);
  }

  /// Adds other activations of the same shape.
  template <typename T>
  void add(const Columns<T>& x, std::int64_t channel, std::int64_t first) {
    const Place place = place_of(x, first);
    from_[count_++] = reinterpret_cast<const char*>(
        x.data + place.entry + channel * x.channel_stride + place.position * x.sample_stride);
  }

  /// The next line, or `fallback` if there are no more: prefetching that is harmless.
  const char* next() {
    if (handed_out_ == count_ * lines_) return fallback_;
    const char* const from = from_[handed_out_ / lines_] + handed_out_ % lines_ * kLine;
    ++handed_out_;
    return from;
  }

 private:
  static constexpr std::int64_t kLine = 64, kSamples = 64;
  const char* from_[3];
  std::int64_t count_ = 0, lines_, handed_out_ = 0;
  const char* fallback_;
};

}  // namespace keel::cpu::KEEL_ISA
