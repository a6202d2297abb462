#pragma once

#include <cstdint>

namespace keel::bench {

/// The activations that layers and stages are timed on: (32, 64, 32, 32).
inline constexpr std::int64_t kBatch = 32, kChannels = 64, kSide = 32;

}  // namespace keel::bench
