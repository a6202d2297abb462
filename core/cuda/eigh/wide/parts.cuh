#pragma once

// Matrices beyond what one multiprocessor holds are worked by several, step by step: measure (size, rows without a
// neighbour), reduce (matrix -> tridiagonal, its rows in the shared memory of many blocks), leaves (pieces of the
// tridiagonal matrix decomposed, a block each), for each level of merges prepare, roots, weights, update and
// multiply, and at last finish (vectors back through the reflections). This is what one step leaves for the next.

#include <cstddef>
#include <cstdint>

#include "cuda/eigh/bits.cuh"
#include "cuda/eigh/secular.h"
#include "host_device.h"

namespace keel::cuda {

/// The largest piece of the tridiagonal matrix that one block decomposes.
template <typename T>
inline constexpr int kWideLeaf = sizeof(T) == 4 ? 128 : 64;

/// What a merge's members have to know.
template <typename T>
struct WideMerge {
  T rho;  ///< the update is rho z z^T
  int alive, turns;
};

/// How a matrix is spread out.
struct WideShape {
  int n;
  int stride;  ///< of rows under way: n, up to a whole number of 128
  int blocks;  ///< that share a matrix while it is reduced
  int shared_rows;  ///< a block's rows in shared memory; the others, which are done with first, are in global memory
};

/// One matrix under way, in device memory.
template <typename T>
struct WideParts {
  Bits<T>* largest;  ///< these two start as zeros
  int* has_neighbour;
  T *reflectors, *vectors, *merged, *update;  ///< `stride` rows of as many; a vector is a row
  T *diagonal, *coupling, *reflector_scale;
  T *value, *pole, *weight, *refined, *offset, *dropped_pole;
  SecularTurn<T>* turn;
  WideMerge<T>* merge;  ///< at the merge's first place
  int* order;           ///< the matrix's row that is worked as row i
  int* sorted;          ///< within the last merge, the value that comes i-th
  int *source, *dropped_source, *origin;
  unsigned char* end;

  KEEL_HOST_DEVICE WideParts(unsigned char* memory, int stride) : end(memory) {
    const std::int64_t length = stride, square = length * stride;
    take(largest, 2);
    take(has_neighbour, length);
    take(reflectors, square);
    take(vectors, square);
    take(merged, square);
    take(update, square);
    take(diagonal, length);
    take(coupling, length);
    take(reflector_scale, length);
    take(value, length);
    take(pole, length);
    take(weight, length);
    take(refined, length);
    take(offset, length);
    take(dropped_pole, length);
    take(turn, length);
    take(merge, length);
    take(order, length);
    take(sorted, length);
    take(source, length);
    take(dropped_source, length);
    take(origin, length);
  }
  static std::size_t bytes(int stride) {
    return std::size_t(WideParts(nullptr, stride).end - static_cast<unsigned char*>(nullptr));
  }
  /// Of which so many have to be zeros at first.
  static std::size_t zero_bytes(int stride) {
    return std::size_t(reinterpret_cast<unsigned char*>(WideParts(nullptr, stride).reflectors) -
                       static_cast<unsigned char*>(nullptr));
  }

 private:
  template <typename Number>
  KEEL_HOST_DEVICE void take(Number*& array, std::int64_t count) {
    array = reinterpret_cast<Number*>(end);
    end += (count * std::int64_t(sizeof(Number)) + 127) / 128 * 128;
  }
};

}  // namespace keel::cuda
