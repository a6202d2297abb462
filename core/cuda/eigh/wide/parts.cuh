#pragma once

// Matrices too large for one multiprocessor are solved by several, in these steps: measure (size,
// rows without a neighbour); reduce (matrix -> tridiagonal, with its rows in the shared memory of
// many blocks); leaves (decomposes pieces of the tridiagonal matrix, one block each); for each
// level of merges prepare, roots, weights, update and multiply; and finish (back-transformation of
// the vectors). WideParts is what they pass on.

#include <cstddef>
#include <cstdint>

#include "cuda/memory.cuh"
#include "cuda/plan.h"
#include "formulas/secular.h"
#include "host_device.h"

namespace keel::cuda {

/// What the later kernels need to know about a merge.
template <typename T>
struct WideMerge {
  T rho;  ///< the update is rho z z^T
  int alive, rotations;
};

/// One matrix in flight, in device memory.
template <typename T>
struct WideParts {
  Bits<T>* largest;  ///< this and has_neighbour start as zeros
  int* has_neighbour;
  T *reflectors, *vectors, *merged, *update;  ///< `stride` rows of as many; a vector is a row
  T *diagonal, *coupling, *reflector_scale;
  T *value, *pole, *weight, *refined, *offset, *dropped_pole;
  SecularRotation<T>* rotation;
  WideMerge<T>* merge;  ///< at the first place of each merge
  int* order;           ///< the row of the matrix that is processed as row i
  int* sorted;          ///< within the last merge, the index of the i-th value
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
    take(rotation, length);
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
  /// How many of the bytes have to be zero at the start.
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

/// The block's dynamic shared memory.
__device__ __forceinline__ unsigned char* shared_memory() {
  extern __shared__ __align__(16) unsigned char wide_memory[];
  return wide_memory;
}

}  // namespace keel::cuda
