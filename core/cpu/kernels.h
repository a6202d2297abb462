#pragma once

// Inner loops that are compiled once per instruction set. The best set is chosen at run time.

#include <cstdint>

#include "keel/eigh.h"
#include "keel/executor.h"
#include "keel/svd.h"

namespace keel::cpu {

/// Rows of scratch matrices are padded to a whole number of the widest vectors.
template <typename T>
constexpr std::int64_t padded(std::int64_t n) {
  constexpr std::int64_t width = 64 / sizeof(T);
  return (n + width - 1) / width * width;
}

/// Eigenvectors under rotation are stored in blocks of this many rows, so that one block stays in
/// cache. Element (row, column) is at ((row / kBlockRows) * n + column) * kBlockRows + row %
/// kBlockRows.
template <typename T>
inline constexpr std::int64_t kBlockRows = 128 / std::int64_t(sizeof(T));

/// QL on one tridiagonal matrix. The plane rotations are recorded and applied to the blocks of
/// vectors, a few sweeps behind. An iteration stops when the list of rotations is full.
template <typename T>
struct QlProgress {
  std::int64_t n;
  T* diagonal;
  T* off_diagonal;  ///< n entries, the last one unused
  int max_sweeps;   ///< for each eigenvalue
  // Rotation i of a sweep acts on columns i and i + 1. A sweep runs from `high` - 1 down to `low`.
  struct Sweep {
    std::int64_t low, high, first;  ///< `first`: where its rotations begin in cosine and sine
  };
  T* blocks;                 ///< the vectors, see kBlockRows
  std::int64_t block_count;  ///< 0 for the values alone
  T* cosine;
  T* sine;
  Sweep* sweeps;
  std::int64_t rotation_capacity, sweep_capacity;
  std::int64_t sweep_count = 0;
  std::int64_t row = 0;  ///< the eigenvalue being isolated
  int row_sweeps = 0;
  bool finished = false;
  bool unconverged = false;
};

/// Lets kernels call eigh and share work among threads. (Not std::function, whose code must not be
/// compiled for one instruction set.)
template <typename T>
struct Helpers {
  const Executor* executor;
  bool (*solve)(const Executor& executor, std::int64_t n, const T* matrix, T* vectors,
                std::int64_t stride);
  void (*run)(const Executor& executor, std::int64_t pieces,
              void (*body)(const void*, std::int64_t), const void* data);

  /// The vectors of one matrix, by descending values, with rows `stride` apart in both. Returns
  /// whether it converged.
  [[gnu::always_inline]] bool eigh(std::int64_t n, const T* matrix, T* vectors,
                                   std::int64_t stride) const {
    return solve(*executor, n, matrix, vectors, stride);
  }
  template <typename Body>
  void share(std::int64_t pieces, const Body& body) const {
    run(
        *executor, pieces,
        [](const void* data, std::int64_t piece) { (*static_cast<const Body*>(data))(piece); },
        &body);
  }
};

/// eigh_lanes.h: a batch, one matrix per lane. Without `vectors`, the values alone. E is real or
/// complex.
template <typename E>
struct LaneKernels {
  std::int64_t (*scratch)(std::int64_t n);
  void (*solve)(std::int64_t first, std::int64_t count, Matrices<const E> matrices,
                RealOf<E>* values, Matrices<E> vectors, EighOrder order, EighStatus* status,
                int max_sweeps, RealOf<E>* scratch);
};

template <typename T>
struct Kernels {
  int lanes;

  /// c = a b for n x n matrices with rows padded<T>(n) elements apart, b and c 64-byte aligned.
  void (*multiply)(std::int64_t n, const T* a, const T* b, T* c);

  LaneKernels<T> real_lanes;
  LaneKernels<std::complex<T>> complex_lanes;

  // eigh_one.h: one matrix over all lanes.
  bool (*load)(std::int64_t n, const T* matrix, std::int64_t row_stride, T* scaled, int& exponent);
  void (*tridiagonalise)(std::int64_t n, T* matrix, T* diagonal, T* off_diagonal, T* reflectors,
                         T* tau, T* scratch);
  void (*form_vectors)(std::int64_t n, const T* reflectors, const T* tau, T* blocks, T* scratch);
  void (*iterate)(QlProgress<T>& progress);
  void (*store)(std::int64_t n, int exponent, const T* diagonal, const T* blocks, EighOrder order,
                T* values, T* vectors, std::int64_t vector_stride, T* scratch);

  // svd_jacobi.h: `count` matrices of the batch, one per lane (svd_lanes), or one matrix over all
  // lanes (svd_alone).
  using SolveSvd = void (*)(const std::int64_t* which, std::int64_t count,
                            Rectangles<const T> matrices, T* values, Rectangles<T> left,
                            Rectangles<T> right, SvdStatus* status, int max_sweeps,
                            const Helpers<T>& helpers, T* scratch);
  using SvdScratch = std::int64_t (*)(std::int64_t m, std::int64_t n);
  SvdScratch svd_lanes_scratch, svd_alone_scratch;
  SolveSvd svd_lanes, svd_alone;

  // svd_polish.h: A^T A of one matrix, and its singular values from the eigenvectors of A^T A. Both
  // return false if the matrix is not suitable.
  SvdScratch svd_polish_scratch;
  bool (*svd_square)(std::int64_t index, Rectangles<const T> matrices, int& exponent, T* square,
                     const Helpers<T>& helpers, T* scratch);
  bool (*svd_polish)(std::int64_t index, Rectangles<const T> matrices, int exponent,
                     const T* vectors, const Helpers<T>& helpers, T* values, Rectangles<T> left,
                     Rectangles<T> right, T* scratch);
};

/// The best kernels that this processor supports. KEEL_ISA=baseline or avx2 in the environment caps
/// the instruction set.
template <typename T>
const Kernels<T>& kernels();

}  // namespace keel::cpu
