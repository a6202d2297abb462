#pragma once

// Which kernel runs: every limit on the size of a matrix or a batch, and every choice between kernels that depends on
// one, as functions of sizes and of the GPU. docs/architecture.md shows the choices as tables.
//
// A choice must not depend on a matrix's numbers or its place in the batch.

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "cuda/svd/layouts.h"
#include "keel/matrices.h"

namespace keel::cuda {

/// What a choice needs to know about a GPU. launch/card.h has that of the current device.
struct Card {
  std::int64_t multiprocessors;
  std::int64_t shared_memory;  ///< bytes that a block can have
  bool clusters;               ///< whether blocks can be launched in clusters
};

template <typename Integer>
constexpr KEEL_HOST_DEVICE Integer pieces(Integer count, Integer size) {
  return (count + size - 1) / size;
}

/// From a size to the kernel that is compiled for it: calls body(std::integral_constant<int, SIZE>) with the first of
/// these sizes that is at least n, or with the last.
template <int FIRST, int... REST, typename Body>
auto by_size(std::int64_t n, const Body& body) {
  if constexpr (sizeof...(REST) > 0)
    if (n > FIRST) return by_size<REST...>(n, body);
  return body(std::integral_constant<int, FIRST>{});
}

// --- One thread per matrix (matrix/tiny.cuh), for eigh, spectral and their gradients, svd and polar.

inline constexpr std::int64_t kLargestTiny = 4;
/// From this batch size on, one thread per matrix is faster than several: the batch fills the GPU.
inline constexpr std::int64_t kLeastTinyBatch = 8192;

constexpr bool fits_one_thread(std::int64_t n, std::int64_t batch) {
  return n <= kLargestTiny && batch >= kLeastTinyBatch;
}

template <typename Body>
auto by_tiny_size(std::int64_t n, const Body& body) {
  return by_size<1, 2, 3, 4>(n, body);
}

// --- One block or a part of one per matrix (matrix/small.cuh): spectral and the backward passes.

inline constexpr std::int64_t kLargestSmall = 64;

template <typename Body>
auto by_small_size(std::int64_t n, const Body& body) {
  return by_size<16, 32, 64>(n, body);
}

/// Whether clusters of `parts` blocks share each matrix in the backward of ZCA (layer_matrix/zca_backward.cuh), where
/// `at_once` of the blocks fit a multiprocessor. They finish sooner while all of them run at once. Clusters do not fill
/// a device: on an H200, 48 of 4 blocks ran at once, and 64 did not.
constexpr bool shares_matrices(std::int64_t n, std::int64_t batch, std::int64_t parts,
                               std::int64_t at_once, const Card& card) {
  return card.clusters && n > 32 && n <= kLargestSmall &&
         parts * batch * 4 <= at_once * card.multiprocessors * 3;
}

// --- eigh

enum class EighPath {
  tiny,     ///< one thread per matrix
  block,    ///< one block or a part of one
  middle,   ///< four launches: one block, two, one, and one for every 64 vectors
  wide,     ///< several multiprocessors
  cusolver  ///< whatever does not fit
};

/// The largest n that fits into 227 KB of shared memory.
template <typename T>
inline constexpr std::int64_t kLargestInBlock = sizeof(RealOf<T>) == 4 ? 128 : 64;
/// Twice that, as a matrix is decomposed in two halves. The smallest is larger than one half.
template <typename T>
inline constexpr std::int64_t kLargestMiddle = 2 * kLargestInBlock<T>;
inline constexpr std::int64_t kLargestWide = 2048;
/// The largest piece of a tridiagonal matrix that one block decomposes there.
template <typename T>
inline constexpr int kWideLeaf = int(kLargestInBlock<T>);
/// How many matrices the middle path has in flight: each needs memory of 1.6 times its size, and 132 fill the GPU.
inline constexpr std::int64_t kMiddleAtOnce = 528;
/// Device memory for those of the wide path.
inline constexpr std::int64_t kWideMemory = std::int64_t(512) << 20;
/// cuSOLVER solves a single matrix on another path, which is slower below this size (bench/NOTES.md).
inline constexpr std::int64_t kFastAlone = 192;
/// From here on cuSOLVER's eigenvalues alone take less time than keel's eigenvalues and vectors.
inline constexpr std::int64_t kLeastValuesAlone = 2048;
/// The blocks that share a matrix while it is prepared for cuSOLVER.
constexpr int cusolver_slices(std::int64_t batch) { return batch < 64 ? 32 : 8; }

/// The size of the kernel that decomposes n x n in a block: a power of two, at least 4.
constexpr std::int64_t block_size(std::int64_t n) {
  std::int64_t size = 4;
  while (size < n) size *= 2;
  return size;
}
template <typename T, typename Body>
auto by_block_size(std::int64_t n, const Body& body) {
  if constexpr (kIsComplex<T> && kLargestInBlock<T> == 128)
    return by_size<8, 16, 32, 64, 128>(n, body);
  else if constexpr (kIsComplex<T>)
    return by_size<8, 16, 32, 64>(n, body);
  else if constexpr (kLargestInBlock<T> == 128)
    return by_size<4, 8, 16, 32, 64, 128>(n, body);
  else
    return by_size<4, 8, 16, 32, 64>(n, body);
}

/// The wide path's last kernel holds whole vectors, whose length is a multiple of 128.
template <typename Body>
auto by_wide_size(std::int64_t stride, const Body& body) {
  return by_size<256, 512, 1024, kLargestWide>(stride, body);
}

/// The shared memory of a block that decomposes matrices of block_size() n: for eigh, and for layer_matrix, which goes
/// on with the result. The kernels assert these numbers, and those of the other paths.
template <typename T>
constexpr std::int64_t block_bytes(std::int64_t n, bool for_layers = false) {
  constexpr int kOfFloat[2][6] = {{5632, 8192, 5472, 16928, 58272, 214688},
                                  {6144, 8640, 5680, 17328, 59056, 216240}};
  constexpr int kOfDouble[2][5] = {{10112, 13696, 9632, 31264, 111392},
                                   {11008, 14528, 10032, 32048, 112944}};
  constexpr int kOfComplexFloat[] = {10176, 6960, 21936, 76464, 216256},
                kOfComplexDouble[] = {17088, 12336, 40752, 146736};
  int which = 0;
  while ((kIsComplex<T> ? 8 : 4) << which < n) ++which;
  if constexpr (kIsComplex<T>)
    return sizeof(T) == 8 ? kOfComplexFloat[which] : kOfComplexDouble[which];
  else if constexpr (sizeof(T) == 4)
    return kOfFloat[for_layers][which];
  else
    return kOfDouble[for_layers][which];
}
/// Of a block of the largest middle and of the largest wide kernel, and of the part of the wide reduction that is there
/// for any n.
template <typename T>
inline constexpr std::int64_t kMiddleBytes = sizeof(T) == 4 ? 222208 : 150528;
template <typename T>
inline constexpr std::int64_t kWideBytes = sizeof(T) == 4 ? 214688 : 147536;
template <typename T>
inline constexpr std::int64_t kWideReduceBytes = sizeof(T) == 4 ? 224 : 368;

template <typename T>
constexpr bool fits_in_block(std::int64_t n, const Card& card, bool for_layers = false) {
  return n <= kLargestInBlock<T> && block_bytes<T>(n, for_layers) <= card.shared_memory;
}

/// How wide/ distributes a matrix.
struct WideShape {
  int n;
  int stride;  ///< of rows in scratch memory: n, rounded up to a multiple of 128
  int blocks;  ///< that share a matrix during the reduction
  /// The rows that a block holds in shared memory. Its others are in global memory; these are the
  /// first ones, which are finished first.
  int shared_rows;
};

/// Spreads the matrices over all multiprocessors, but with at least eight rows per block (bench/NOTES.md).
template <typename T>
constexpr WideShape wide_shape(std::int64_t n, std::int64_t batch, const Card& card) {
  constexpr std::int64_t kRows = 8, kUnit = 128;
  static_assert(kUnit % kWideLeaf<T> == 0);
  const std::int64_t stride = pieces(n, kUnit) * kUnit, of_row = std::int64_t(sizeof(T)) * stride;
  const std::int64_t free_bytes = card.shared_memory - kWideReduceBytes<T> - 3 * of_row;
  const std::int64_t room = std::max<std::int64_t>(0, free_bytes / of_row);
  const std::int64_t least = room > 0 ? pieces(n, room) : n, all = card.multiprocessors;
  const std::int64_t wanted = std::min(pieces(n, kRows), all / std::min(batch, all));
  const std::int64_t blocks = std::min({std::max(least, wanted), all, n});
  return {int(n), int(stride), int(blocks), int(std::min(room, pieces(n, blocks)))};
}

template <typename T>
constexpr EighPath eigh_path(std::int64_t n, std::int64_t batch, const Card& card) {
  if constexpr (kIsComplex<T>)
    return fits_in_block<T>(n, card) ? EighPath::block : EighPath::cusolver;
  if (fits_one_thread(n, batch)) return EighPath::tiny;
  if (fits_in_block<T>(n, card)) return EighPath::block;
  if (n > kLargestInBlock<T> && n <= kLargestMiddle<T> && kMiddleBytes<T> <= card.shared_memory)
    return EighPath::middle;
  if (n <= kWideLeaf<T> || n > kLargestWide || card.shared_memory < kWideBytes<T>)
    return EighPath::cusolver;
  // At least half of the rows must be in shared memory.
  const WideShape shape = wide_shape<T>(n, 1, card);
  return shape.shared_rows * 2 >= pieces<std::int64_t>(n, shape.blocks) ? EighPath::wide
                                                                        : EighPath::cusolver;
}

// --- svd

enum class SvdPath {
  tiny,        ///< one thread per matrix
  one_launch,  ///< eigenvectors of A^T A, corrected: one block per matrix, in one launch
  block,       ///< the same, in three launches
  grid,        ///< the same, by all multiprocessors
  jacobi,      ///< QR and Jacobi's method, as also for matrices that the four above leave
  slices,      ///< slices of the rows, each as another path has it, and then what they leave
  cusolver     ///< one matrix after the other
};

inline constexpr std::int64_t kLargestSvd =
    512;  ///< min(m, n); of larger ones cuSOLVER has what the grid leaves

/// For min(rows, columns) > 0. keel's own kernels count entries in 32 bits.
constexpr bool svd_supports(std::int64_t rows, std::int64_t columns) {
  return std::min(rows, columns) > kLargestSvd || rows * columns < std::int64_t(1) << 30;
}

/// Whether the grid tries matrices larger than kLargestSvd.
template <typename T>
constexpr bool grid_comes_first(std::int64_t rows, std::int64_t columns, const Card& card) {
  return rows * columns < std::int64_t(1) << 30 &&
         eigh_path<T>(std::min(rows, columns), 1, card) == EighPath::wide;
}

/// For smaller n, one launch of Jacobi's method is as fast as the others.
inline constexpr std::int64_t kLeastPolished = 12, kLeastOnGrid = 32;
template <typename T>
inline constexpr std::int64_t kLargestPolishedInBlock = sizeof(T) == 4 ? 128 : 64;
inline constexpr std::int64_t kTallestPolishedInBlock = 32767;
inline constexpr std::int64_t kLargestInOneLaunch = 64;
inline constexpr int kMostPolishThreads = 512;
/// Left to a kernel's static shared memory.
inline constexpr std::int64_t kSvdStaticBytes = 1024;

/// Up to this many matrices of size n, all multiprocessors are faster than the products of one block per matrix.
constexpr std::int64_t few_for_grid(std::int64_t n) { return n > 80 ? 32 : n > 64 ? 8 : 0; }

/// The columns of a thread's tile.
template <typename T>
constexpr int tile_width(std::int64_t n) {
  return n <= (sizeof(T) == 4 ? 32 : 16) ? 2 : n <= 64 ? 4 : 8;
}

template <typename T>
PolishLayout<T> polish_layout(std::int64_t m, std::int64_t n) {
  return PolishLayout<T>(int(m), int(n), tile_width<T>(n));
}

/// One thread per tile of K; more if X is taller, or if the batch is small enough to leave room for them.
template <typename T>
int polish_threads(const PolishLayout<T>& layout, std::int64_t batch) {
  constexpr std::int64_t kFew = 1024;
  const int n = layout.n;
  const int tiles = layout.columns / PolishLayout<T>::kPack * (layout.columns / tile_width<T>(n));
  const int wanted = tiles * std::min(4, layout.m / n);
  const int fewest = batch > kFew ? 32 : n <= 16 ? 128 : 256;
  return std::clamp(pieces(wanted, 32) * 32, fewest, kMostPolishThreads);
}

/// X over J comes first. What eigh needs follows, and the correction uses the same memory again.
template <typename T>
std::int64_t one_launch_bytes(const PolishLayout<T>& layout) {
  constexpr std::int64_t kNumber = sizeof(T);
  return std::max(layout.numbers() * kNumber,
                  layout.stack() * kNumber + block_bytes<T>(std::max(16, layout.n)));
}

/// The rows of a slice of a tall matrix. As many as a block can hold for kLeastPolished columns or more, but at most 64
/// times the columns.
template <typename T>
constexpr std::int64_t slice_rows(std::int64_t n, const Card& card) {
  const std::int64_t columns = pieces<std::int64_t>(n, 8) * 8,
                     numbers = (card.shared_memory - kSvdStaticBytes) / std::int64_t(sizeof(T));
  return std::min(std::max<std::int64_t>(64 * n, 256), numbers / columns - 2 * columns - 24);
}
/// Whether slices leave at most half of a matrix's rows. Rows of different sizes lose digits, as they do anyway where
/// there are too many to be sorted.
template <typename T>
constexpr bool in_slices(std::int64_t m, std::int64_t n, const Card& card) {
  const std::int64_t rows = slice_rows<T>(n, card);
  return n <= kLargestPolishedInBlock<T> && rows >= 4 * n && m > 2 * rows &&
         m > SvdLayout<T>::kMostSorted;
}

/// For 0 < min(rows, columns).
template <typename T>
SvdPath svd_path(std::int64_t rows, std::int64_t columns, std::int64_t batch, const Card& card) {
  const std::int64_t m = std::max(rows, columns), n = std::min(rows, columns);
  if (m <= kLargestTiny) return SvdPath::tiny;
  if (n > kLargestSvd) return SvdPath::cusolver;
  if (n < kLeastPolished)
    return batch <= card.multiprocessors && in_slices<T>(m, n, card) ? SvdPath::slices
                                                                     : SvdPath::jacobi;
  const std::int64_t most = card.shared_memory - kSvdStaticBytes;
  if (batch > few_for_grid(n) && n <= kLargestPolishedInBlock<T> && m <= kTallestPolishedInBlock) {
    const PolishLayout<T> layout = polish_layout<T>(m, n);
    if (layout.numbers() * std::int64_t(sizeof(T)) <= most) {
      // A block takes more threads and shared memory for all steps than for the longest, the eigenvectors. So it pays
      // while no multiprocessor gets more than one.
      const bool together =
          n <= kLargestInOneLaunch && batch <= card.multiprocessors &&
          polish_threads(layout, batch) >= 4 * std::max<std::int64_t>(16, block_size(n)) &&
          one_launch_bytes(layout) <= most;
      return together ? SvdPath::one_launch : SvdPath::block;
    }
  }
  if (in_slices<T>(m, n, card)) return SvdPath::slices;
  return n >= kLeastOnGrid ? SvdPath::grid : SvdPath::jacobi;
}

/// Limits on the numbers for matrices in flight: eigenproblems and their vectors, or all that the grid needs.
inline constexpr std::int64_t kBlockNumbers = std::int64_t(1) << 25;
inline constexpr std::int64_t kGridNumbers = std::int64_t(1) << 26;

/// How many correction steps the grid takes, and whether by three terms, in five launches, or by two, in three.
/// Finished matrices skip the rest. In the steps 1 and 3 columns may be turned by their own eigenvectors.
struct GridSteps {
  int count;
  bool three_terms;
};
/// Up to n = 128 an idle launch, 0.8 us, matters more than a third term.
constexpr GridSteps grid_steps(std::int64_t n) { return {6, n > 128}; }
/// How often the columns of a matrix may be turned again by eigenvectors of their own products (formulas/regroup.h).
inline constexpr int kMostTurns = 2;

/// The kernel of Jacobi's method for n columns that a block can hold.
template <typename T, typename Body>
auto by_jacobi_size(std::int64_t n, const Body& body) {
  if constexpr (sizeof(T) == 4)
    return by_size<16, 32, 64, 128, kLargestSvd>(n, body);
  else
    return by_size<16, 32, 64, kLargestSvd>(n, body);
}

/// Whether a block of Jacobi's method can hold a matrix. Larger ones take a cluster of blocks, if the GPU has them, or
/// a block with memory outside.
template <typename T>
bool jacobi_fits_in_block(const SvdLayout<T>& layout, const Card& card) {
  return layout.base_bytes() + layout.rotated() * std::int64_t(sizeof(T)) <=
         card.shared_memory - kSvdStaticBytes;
}

// --- moments and affine, of `channels` in groups

inline constexpr int kSlots = 64;  ///< channels of a slab

/// Whether the channels consist of slabs of 64 that hold whole groups.
constexpr bool fills_slabs(std::int64_t channels, std::int64_t group_size) {
  return channels % kSlots == 0 && kSlots % group_size == 0;
}

enum class MomentsPath {
  tensor_cores,  ///< at memory bandwidth, if the card's blocks can hold its tiles
  general
};

/// For numbers that are summed in float32. Those in float64 take the general path.
constexpr MomentsPath moments_path(std::int64_t channels, std::int64_t group_size) {
  return fills_slabs(channels, group_size) ? MomentsPath::tensor_cores : MomentsPath::general;
}

/// The side of a thread's tile of products on the general path. Its registers hold 8 x 8 in float32, or 4 x 4 in float64.
template <typename A>
constexpr int moments_tile(std::int64_t group_size) {
  return sizeof(A) == 4 && group_size > 4 ? 8 : 4;
}

enum class AffinePath {
  small,  ///< a thread has whole rows of the small matrices, if data can be moved 16 bytes at a time
  tensor_cores,  ///< if the card's blocks can hold its tiles
  general
};

constexpr AffinePath affine_path(std::int64_t channels, std::int64_t group_size) {
  if (!fills_slabs(channels, group_size) || group_size < 4) return AffinePath::general;
  return group_size < 16 ? AffinePath::small : AffinePath::tensor_cores;
}

}  // namespace keel::cuda
