#pragma once

// Products of large row-major matrices, C = A B or C -= A B. Tiles of C are held in registers, and
// B is packed so that a tile reads it sequentially. The order of additions in an entry does not
// depend on the tile it is in, so splitting C into pieces does not change a bit.

#include <utility>

#include "eigh_large_kernels.h"
#include "simd.h"

namespace keel::cpu::KEEL_ISA {

/// As many rows of two vectors as fit into the registers: 32 with AVX-512, otherwise 16.
inline constexpr int kTileRows = KEEL_VECTOR_BYTES == 64 ? 12 : 6;
template <typename T>
inline constexpr int kTileColumns = 2 * kLanes<T>;
/// Terms added at a time: a packed strip of B of this depth fits into the L1 cache.
template <typename T>
inline constexpr std::int64_t kDepth = 1024 / std::int64_t(sizeof(T));

template <typename T>
inline Vec<T> at(const T* x) {
  Vec<T> v;
  __builtin_memcpy(&v, x, sizeof(v));
  return v;
}
template <typename T>
inline void put(T* x, Vec<T> v) {
  __builtin_memcpy(x, &v, sizeof(v));
}

/// Computes ROWS rows of a tile, of which the first `columns` columns exist. If TURNED, `a` holds the
/// transpose of A.
template <typename T, int ROWS, bool TURNED>
void multiply_tile(std::int64_t depth, const T* a, std::int64_t a_stride, const T* packed, T* c,
                   std::int64_t c_stride, std::int64_t columns, Into into) {
  constexpr std::int64_t kL = kLanes<T>;
  Vec<T> sum[ROWS][2] = {};
  for (std::int64_t k = 0; k < depth; ++k) {
    const Vec<T> left = at(packed + k * 2 * kL), right = at(packed + k * 2 * kL + kL);
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; ++r) {
      const T x = TURNED ? a[k * a_stride + r] : a[r * a_stride + k];
      sum[r][0] += x * left;
      sum[r][1] += x * right;
    }
  }
  if (columns % kL == 0) {
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 2
      for (int v = 0; v < 2; ++v) {
        if (v * kL == columns) break;
        T* const to = c + r * c_stride + v * kL;
        if (into == Into::set)
          put<T>(to, sum[r][v]);
        else if (into == Into::add)
          put<T>(to, at(to) + sum[r][v]);
        else
          put<T>(to, at(to) - sum[r][v]);
      }
    return;
  }
  for (int r = 0; r < ROWS; ++r)
    for (std::int64_t j = 0; j < columns; ++j) {
      T& to = c[r * c_stride + j];
      const T x = sum[r][j / kL][j % kL];
      to = into == Into::set ? x : into == Into::add ? to + x : to - x;
    }
}

template <typename T, bool TURNED, int... ROWS>
constexpr auto tiles(std::integer_sequence<int, ROWS...>) {
  using Tile = decltype(&multiply_tile<T, 1, TURNED>);
  struct {
    Tile of[sizeof...(ROWS)];
    Tile operator[](std::int64_t k) const { return of[k]; }
  } table{{multiply_tile<T, ROWS + 1, TURNED>...}};
  return table;
}
/// Tiles of 1, 2, ... kTileRows rows.
template <typename T, bool TURNED>
inline constexpr auto kTiles = tiles<T, TURNED>(std::make_integer_sequence<int, kTileRows>{});

/// The size of a packed B.
template <typename T>
std::int64_t packed_size(std::int64_t depth, std::int64_t columns) {
  constexpr std::int64_t width = kTileColumns<T>;
  return depth * ((columns + width - 1) / width * width);
}

/// Packs B (depth x columns) in the order in which tiles read it: kDepth rows at a time, in strips
/// of kTileColumns. If `rows_of` is not null, row k of B is row rows_of[k] of `b`.
template <typename T>
void pack(std::int64_t depth, std::int64_t columns, const T* b, std::int64_t stride,
          const int* rows_of, T* packed) {
  constexpr std::int64_t width = kTileColumns<T>;
  for (std::int64_t first = 0; first < depth; first += kDepth<T>) {
    const std::int64_t rows = depth - first < kDepth<T> ? depth - first : kDepth<T>;
    for (std::int64_t left = 0; left < columns; left += width) {
      for (std::int64_t k = first; k < first + rows; ++k, packed += width) {
        const T* from = b + (rows_of ? std::int64_t(rows_of[k]) : k) * stride + left;
        if (columns - left >= width || columns - left == kLanes<T>) {
          put<T>(packed, at(from));
          put<T>(packed + kLanes<T>, columns - left == kLanes<T> ? Vec<T>{} : at(from + kLanes<T>));
        } else {
          for (std::int64_t j = 0; j < width; ++j) packed[j] = left + j < columns ? from[j] : T(0);
        }
      }
    }
  }
}

/// Computes C (rows x columns) from A (rows x depth), or its transpose if TURNED, and a packed B.
template <typename T, bool TURNED = false>
void multiply_packed(std::int64_t rows, std::int64_t columns, std::int64_t depth, const T* a,
                     std::int64_t a_stride, const T* packed, T* c, std::int64_t c_stride,
                     Into into) {
  constexpr std::int64_t width = kTileColumns<T>;
  if (depth == 0 && into == Into::set)
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j) c[i * c_stride + j] = 0;
  for (std::int64_t first = 0; first < depth; first += kDepth<T>) {
    const std::int64_t deep = depth - first < kDepth<T> ? depth - first : kDepth<T>;
    const Into how = first > 0 && into == Into::set ? Into::add : into;
    for (std::int64_t left = 0; left < columns; left += width, packed += deep * width) {
      const std::int64_t wide = columns - left < width ? columns - left : width;
      // Distribute the rows evenly: a tile of few rows has few independent sums and waits for each.
      std::int64_t tiles_left = (rows + kTileRows - 1) / kTileRows;
      for (std::int64_t i = 0; i < rows; --tiles_left) {
        const std::int64_t high = (rows - i + tiles_left - 1) / tiles_left;
        kTiles<T, TURNED>[high - 1](deep,
                                    TURNED ? a + first * a_stride + i : a + first + i * a_stride,
                                    a_stride, packed, c + left + i * c_stride, c_stride, wide, how);
        i += high;
      }
    }
  }
}

}  // namespace keel::cpu::KEEL_ISA
