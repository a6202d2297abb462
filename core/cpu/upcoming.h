#pragma once

// Memory that the next tile will read, asked for while this one is multiplied: the caches then fill beside the
// arithmetic. What is asked for may be wrong or outside of all memory; that costs a little time and nothing else.

#include "activation_tiles.h"

namespace keel::cpu::KEEL_ISA {

/// Hands out lines: the one of row k is k * stride bytes further on. Rows are samples where a sample's channels are
/// neighbours, else channels.
class Upcoming {
 public:
  std::int64_t stride;

  template <typename T>
  Upcoming(const Columns<T>& x, std::int64_t channel, std::int64_t width, std::int64_t first,
           const void* nothing, bool wanted)
      : stride(std::int64_t(sizeof(T)) *
               (x.channel_stride == 1 ? x.sample_stride : x.channel_stride)),
        lines_(wanted ? (std::int64_t(sizeof(T)) * (x.channel_stride == 1 ? width : kSamples) +
                         kLine - 1) /
                            kLine
                      : 0),
        nothing_(static_cast<const char*>(nothing)) {
    add(x, channel, first);
  }

  /// The same of other activations of that shape.
  template <typename T>
  void add(const Columns<T>& x, std::int64_t channel, std::int64_t first) {
    const Place place = place_of(x, first);
    from_[count_++] = reinterpret_cast<const char*>(
        x.data + place.entry + channel * x.channel_stride + place.position * x.sample_stride);
  }

  const char* next() {
    if (handed_out_ == count_ * lines_) return nothing_;
    const char* const from = from_[handed_out_ / lines_] + handed_out_ % lines_ * kLine;
    ++handed_out_;
    return from;
  }

 private:
  static constexpr std::int64_t kLine = 64, kSamples = 64;
  const char* from_[3];
  std::int64_t count_ = 0, lines_, handed_out_ = 0;
  const char* nothing_;
};

}  // namespace keel::cpu::KEEL_ISA
