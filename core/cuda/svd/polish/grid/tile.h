#pragma once

// Products of matrices of any size, one tile per block.
//
// The time depends on how many reads are in flight. A read from the L2 cache takes as long as a warp needs for 17 terms of
// the product. So all reads of a round are issued together, with no branch or arithmetic in between. Scaling and padding
// happen later, when the numbers are stored in shared memory.
//
// Of the team (threads.cuh) this needs thread(), sync() and step(). On the host its threads are ordinary threads.

#include <cmath>
#include <cstdint>

#include "host_device.h"

namespace keel::cuda {

/// Four numbers that are adjacent in memory.
template <typename T>
struct alignas(16) GridFour {
  T at[4];
};

/// Whether columns of `count` numbers, `stride` apart, consist of aligned fours.
template <typename T>
KEEL_HOST_DEVICE bool has_fours(const T* data, std::int64_t stride, int count) {
  return reinterpret_cast<std::uintptr_t>(data) % 16 == 0 && stride % 4 == 0 && count % 4 == 0;
}

/// A factor in memory. Its lines of adjacent numbers run along the summed index or across it.
template <typename T>
struct GridFactor {
  const T* data;
  std::int64_t stride;  ///< from one line to the next
  int length, lines;    ///< length of a line, at least 4; number of lines
  T once = 1, again = 1;
  bool fours = has_fours(data, stride, length);

  /// Clamps to a place that exists. `inside` replaces what was read there by zeros.
  KEEL_HOST_DEVICE int line_near(int line) const { return line < lines ? line : lines - 1; }
  KEEL_HOST_DEVICE int four_near(int at) const { return at < length ? at : length - 4; }
  /// The four numbers of a line from `at` on.
  KEEL_HOST_DEVICE GridFour<T> read(int line, int at) const {
    return reinterpret_cast<const GridFour<T>*>(data + line * stride + at)[0];
  }
  /// The same where fours are not aligned, clamped number by number.
  KEEL_HOST_DEVICE GridFour<T> read_singly(int line, int at) const {
    const T* const from = data + line_near(line) * stride;
    GridFour<T> four;
    KEEL_UNROLL
    for (int e = 0; e < 4; ++e) four.at[e] = from[at + e < length ? at + e : length - 1];
    return four;
  }
  /// What was read, scaled, with zeros beyond the end.
  KEEL_HOST_DEVICE GridFour<T> inside(int line, int at, const GridFour<T>& four) const {
    GridFour<T> kept;
    KEEL_UNROLL
    for (int e = 0; e < 4; ++e)
      kept.at[e] = line < lines && at + e < length ? four.at[e] * once * again : T(0);
    return kept;
  }
};

/// 32 x 32 entries of a product. Each of four warps sums a quarter of the terms, 8 x 4 entries per lane, and waits for
/// no other warp.
template <typename T>
struct GridTile {
  static constexpr int kSize = 32, kWarps = 4, kThreads = 32 * kWarps;
  static constexpr int kBlocks = sizeof(T) == 4 ? 3 : 2;  ///< per multiprocessor
  static constexpr int kDepth = 16;  ///< terms that a warp has in shared memory at a time
  static constexpr int kRow = kSize + 16 / int(sizeof(T));
  static constexpr int kOwn = 2;  ///< fours of the product per thread
  using Four = GridFour<T>;

  /// While a warp sums: kDepth rows of the left factor and as many of the right one, by the summed index. Afterwards
  /// its sums, by column.
  alignas(16) T parts[kWarps][kSize][kRow];

  /// The place of four number `which` of this lane, among kDepth terms (k) of 32 lines (i). Adjacent lanes read adjacent
  /// numbers and write to different banks. The four continues in k if the factor's lines run along k, otherwise in i.
  template <bool ALONG>
  KEEL_HOST_DEVICE static void spot(int lane, int which, int& k, int& i) {
    k = ALONG ? (lane % 2 + which % 2 * 2) * 4 : lane / 8 + which * 4;
    i = ALONG ? lane / 2 + which / 2 * 16 : lane % 8 * 4;
  }
  template <bool ALONG, bool FOURS>
  KEEL_HOST_DEVICE static void fetch(const GridFactor<T>& factor, int lane, int begin, int first,
                                     Four (&next)[4]) {
    KEEL_UNROLL
    for (int f = 0; f < 4; ++f) {
      int k, i;
      spot<ALONG>(lane, f, k, i);
      if constexpr (!FOURS)
        next[f] = ALONG ? factor.read_singly(first + i, begin + k)
                        : factor.read_singly(begin + k, first + i);
      else
        next[f] = ALONG ? factor.read(factor.line_near(first + i), begin + k)
                        : factor.read(begin + k, factor.four_near(first + i));
    }
  }
  template <bool ALONG, bool FOURS>
  KEEL_HOST_DEVICE static void lay_down(const GridFactor<T>& factor, int lane, int begin, int first,
                                        const Four (&next)[4], T (*to)[kRow]) {
    const int from = FOURS ? 0 : begin;  // with FOURS no term is missing
    KEEL_UNROLL
    for (int f = 0; f < 4; ++f) {
      int k, i;
      spot<ALONG>(lane, f, k, i);
      if constexpr (ALONG) {
        const Four four = factor.inside(first + i, from + k, next[f]);
        KEEL_UNROLL
        for (int e = 0; e < 4; ++e) to[k + e][i] = four.at[e];
      } else {
        reinterpret_cast<Four*>(&to[k][i])[0] = factor.inside(from + k, first + i, next[f]);
      }
    }
  }

  /// Writes the sums over k < depth of left(i, k) right(k, j), from (top, first) on, to `parts`. After a barrier `sum`
  /// returns them. Each warp calls `look(a, b)` whenever kDepth terms are in shared memory.
  template <bool LEFT_ALONG, bool RIGHT_ALONG, typename Team, typename Look>
  KEEL_HOST_DEVICE void multiply(const Team& team, int depth, int top, int first,
                                 const GridFactor<T>& left, const GridFactor<T>& right,
                                 const Look& look) {
    if (left.fours && right.fours && depth % kDepth == 0)
      add_up<LEFT_ALONG, RIGHT_ALONG, true>(team, depth, top, first, left, right, look);
    else
      add_up<LEFT_ALONG, RIGHT_ALONG, false>(team, depth, top, first, left, right, look);
  }
  template <bool LEFT_ALONG, bool RIGHT_ALONG, bool FOURS, typename Team, typename Look>
  KEEL_HOST_DEVICE void add_up(const Team& team, int depth, int top, int first,
                               const GridFactor<T>& left, const GridFactor<T>& right,
                               const Look& look) {
    const int warp = team.thread() / 32, lane = team.thread() % 32;
    T(*const a)[kRow] = parts[warp];
    T(*const b)[kRow] = parts[warp] + kDepth;
    // Neighbouring lanes share a row or a column, so a warp reads few different numbers.
    const int row = (lane % 2 + lane / 16 * 2) * 4, column = lane / 2 % 8 * 4;
    T sums[4][8] = {};  // by column
    Four next_a[4], next_b[4];
    const auto fetch_both = [&](int from) {
      fetch<LEFT_ALONG, FOURS>(left, lane, from, top, next_a);
      fetch<RIGHT_ALONG, FOURS>(right, lane, from, first, next_b);
    };
    // Single reads need registers for their addresses, so they are not fetched ahead.
    int begin = warp * kDepth;
    if (FOURS && begin < depth) fetch_both(begin);
    for (; begin < depth; begin += kWarps * kDepth) {
      if (!FOURS) fetch_both(begin);
      lay_down<LEFT_ALONG, FOURS>(left, lane, begin, top, next_a, a);
      lay_down<RIGHT_ALONG, FOURS>(right, lane, begin, first, next_b, b);
      team.step();
      if (FOURS && begin + kWarps * kDepth < depth) fetch_both(begin + kWarps * kDepth);
      look(a, b);
      KEEL_UNROLL_BY(8)
      for (int k = 0; k < kDepth; ++k) {
        const Four x = reinterpret_cast<const Four*>(&a[k][row])[0],
                   z = reinterpret_cast<const Four*>(&a[k][row + kSize / 2])[0],
                   y = reinterpret_cast<const Four*>(&b[k][column])[0];
        KEEL_UNROLL
        for (int j = 0; j < 4; ++j) {
          KEEL_UNROLL
          for (int i = 0; i < 4; ++i) {
            sums[j][i] = std::fma(x.at[i], y.at[j], sums[j][i]);
            sums[j][4 + i] = std::fma(z.at[i], y.at[j], sums[j][4 + i]);
          }
        }
      }
      team.step();  // all lanes have read
    }
    KEEL_UNROLL
    for (int j = 0; j < 4; ++j) {
      Four upper, lower;
      KEEL_UNROLL
      for (int i = 0; i < 4; ++i) {
        upper.at[i] = sums[j][i];
        lower.at[i] = sums[j][4 + i];
      }
      reinterpret_cast<Four*>(&a[column + j][row])[0] = upper;
      reinterpret_cast<Four*>(&a[column + j][row + kSize / 2])[0] = lower;
    }
  }
  template <bool LEFT_ALONG, bool RIGHT_ALONG, typename Team>
  KEEL_HOST_DEVICE void multiply(const Team& team, int depth, int top, int first,
                                 const GridFactor<T>& left, const GridFactor<T>& right) {
    multiply<LEFT_ALONG, RIGHT_ALONG>(team, depth, top, first, left, right,
                                      [](const auto&, const auto&) {});
  }

  /// The first row, and the column, of a thread's own fours.
  KEEL_HOST_DEVICE static int own_row(int thread) { return thread % 8 * 4; }
  KEEL_HOST_DEVICE static int own_column(int thread, int which) { return thread / 8 + which * 16; }
  KEEL_HOST_DEVICE T sum(int row, int column) const {
    return (parts[0][column][row] + parts[1][column][row]) +
           (parts[2][column][row] + parts[3][column][row]);
  }
  KEEL_HOST_DEVICE Four sum_of_own(int thread, int which) const {
    const int row = own_row(thread), column = own_column(thread, which);
    Four all[kWarps];
    KEEL_UNROLL
    for (int w = 0; w < kWarps; ++w)
      all[w] = reinterpret_cast<const Four*>(&parts[w][column][row])[0];
    KEEL_UNROLL
    for (int e = 0; e < 4; ++e)
      all[0].at[e] = (all[0].at[e] + all[1].at[e]) + (all[2].at[e] + all[3].at[e]);
    return all[0];
  }

  /// A thread's own fours of a matrix by columns. Entries outside the matrix are undefined.
  struct Own {
    Four at[kOwn];
  };
  KEEL_HOST_DEVICE static Own read_own(int thread, int top, int first, const GridFactor<T>& of) {
    Own own;
    if (of.fours) {
      KEEL_UNROLL
      for (int w = 0; w < kOwn; ++w)
        own.at[w] = of.read(of.line_near(first + own_column(thread, w)),
                            of.four_near(top + own_row(thread)));
    } else {
      KEEL_UNROLL
      for (int w = 0; w < kOwn; ++w)
        own.at[w] = of.read_singly(first + own_column(thread, w), top + own_row(thread));
    }
    return own;
  }
  /// Writes to a matrix by columns, from row `top` and column `first` on.
  KEEL_HOST_DEVICE static void write_own(int thread, int top, int first, const Own& own, T* to,
                                         std::int64_t stride, int rows, int columns) {
    const bool fours = has_fours(to, stride, rows);
    const int i = top + own_row(thread);
    KEEL_UNROLL
    for (int w = 0; w < kOwn; ++w) {
      const int j = first + own_column(thread, w);
      if (j >= columns || i >= rows) continue;
      T* const place = to + j * stride + i;
      if (fours) {
        reinterpret_cast<Four*>(place)[0] = own.at[w];
      } else {
        KEEL_UNROLL
        for (int e = 0; e < 4; ++e)
          if (i + e < rows) place[e] = own.at[w].at[e];
      }
    }
  }
};

}  // namespace keel::cuda
