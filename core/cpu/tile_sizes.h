#pragma once

// How many rows and vectors of a product are held in registers: the sums, one vector for each
// column of the right factor, and a broadcast of the left one.

#include "simd.h"

namespace keel::cpu::KEEL_ISA {

inline constexpr bool kManyRegisters = KEEL_VECTOR_BYTES == 64;  // 32 instead of 16

inline constexpr int kTileVectors = kManyRegisters ? 4 : 2;

constexpr int tile_rows(int vectors) {
  if (!kManyRegisters) return vectors == 2 ? 6 : 8;
  return vectors == 4 ? 6 : vectors == 3 ? 8 : vectors == 2 ? 12 : 16;
}

}  // namespace keel::cpu::KEEL_ISA
