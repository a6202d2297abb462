#include "keel/polar.h"

#include "cuda/matrix/tiny.cuh"
#include "formulas/polar_one_thread.h"
#include "instantiate.h"

namespace keel::cuda {
namespace {

/// The shape of a kernel's matrices, and that of the matrix or its transpose, whichever is not
/// wide.
template <int ROWS, int COLUMNS>
struct Shape {
  static constexpr bool kWide = ROWS < COLUMNS;
  static constexpr int kTall = kWide ? COLUMNS : ROWS, kNarrow = kWide ? ROWS : COLUMNS;

  template <typename T>
  __device__ static T& entry(tiny::Tile<T, ROWS, COLUMNS>& tile, int i, int j) {
    return kWide ? tile(j, i) : tile(i, j);
  }
};

template <typename T, int ROWS, int COLUMNS>
__global__ void __launch_bounds__(tiny::kThreads)
    polar_kernel(Rectangles<const T> matrices, PolarKind kind, Rectangles<T> result, T* margin,
                 PolarFactors<T> factors) {
  using S = Shape<ROWS, COLUMNS>;
  __shared__ tiny::Tile<T, ROWS, COLUMNS> tile;
  __shared__ tiny::Tile<T, 1, S::kNarrow> value;
  __shared__ tiny::Tile<T, S::kNarrow, COLUMNS> right;
  const tiny::Share share(matrices.batch);
  tile.fetch(share, matrices);
  __syncthreads();
  if (share.has_one()) {
    const OneThreadPolar<T, S::kTall, S::kNarrow> polar(
        [&](int i, int j) { return S::entry(tile, i, j); }, kind);
    polar.give([&](int i, int j, T x) { S::entry(tile, i, j) = x; });
    if (margin != nullptr) margin[share.index()] = polar.margin();
    if (factors.values != nullptr)
      polar.template give_factors<S::kWide>([&](int place, T x) { value(0, place) = x; },
                                            [&](int place, int j, T x) { right(place, j) = x; });
  }
  __syncthreads();
  tile.put(share, result);
  if (factors.values == nullptr) return;
  value.put(share, tiny::rows_of(factors.values, matrices.batch, S::kNarrow));
  right.put(share, factors.right);
}

template <typename T, int ROWS, int COLUMNS>
__global__ void __launch_bounds__(tiny::kThreads)
    polar_backward_kernel(Rectangles<const T> matrices, Rectangles<const T> dL_dresult,
                          PolarKind kind, Rectangles<T> dL_dmatrix) {
  using S = Shape<ROWS, COLUMNS>;
  __shared__ tiny::Tile<T, ROWS, COLUMNS> tile, gradient;
  const tiny::Share share(matrices.batch);
  tile.fetch(share, matrices);
  gradient.fetch(share, dL_dresult);
  __syncthreads();
  if (share.has_one()) {
    const OneThreadPolar<T, S::kTall, S::kNarrow> polar(
        [&](int i, int j) { return S::entry(tile, i, j); }, kind);
    polar.backward([&](int i, int j) { return S::entry(gradient, i, j); },
                   [&](int i, int j, T x) { S::entry(tile, i, j) = x; });
  }
  __syncthreads();
  tile.put(share, dL_dmatrix);
}

template <typename T, int ROWS, int COLUMNS>
__global__ void __launch_bounds__(tiny::kThreads)
    polar_from_factors_kernel(Rectangles<const T> result, PolarFactors<const T> factors,
                              Rectangles<const T> dL_dresult, Rectangles<T> dL_dmatrix) {
  constexpr int kNarrow = Shape<ROWS, COLUMNS>::kNarrow;
  // For 4 x 4 doubles 48 KB are not enough for all tiles: each thread then reads its gradient
  // itself.
  constexpr bool kRoom = ROWS * COLUMNS * sizeof(T) < 128;
  __shared__ tiny::Tile<T, ROWS, COLUMNS> factor;
  __shared__ tiny::Tile<T, kRoom ? ROWS : 1, kRoom ? COLUMNS : 1> gradient;
  __shared__ tiny::Tile<T, 1, kNarrow> value;
  __shared__ tiny::Tile<T, kNarrow, COLUMNS> right;
  const tiny::Share share(result.batch);
  factor.fetch(share, result);
  if constexpr (kRoom) gradient.fetch(share, dL_dresult);
  value.fetch(share, tiny::rows_of(factors.values, result.batch, kNarrow));
  right.fetch(share, factors.right);
  __syncthreads();
  if (share.has_one()) {
    const T* const along = dL_dresult[share.index()];
    polar_backward_from<ROWS, COLUMNS>(
        [&](int i, int j) { return factor(i, j); }, static_cast<const T*>(value.own()),
        [&](int l, int j) { return right(l, j); },
        [&](int i, int j) { return kRoom ? gradient(i, j) : along[i * dL_dresult.row_stride + j]; },
        [&](int i, int j, T x) { factor(i, j) = x; });
  }
  __syncthreads();
  factor.put(share, dL_dmatrix);
}

template <typename T>
__global__ void __launch_bounds__(tiny::kThreads) fill(std::int64_t count, T x, T* numbers) {
  const std::int64_t at = std::int64_t(blockIdx.x) * tiny::kThreads + threadIdx.x;
  if (at < count) numbers[at] = x;
}

template <typename T, typename Body>
void by_shape(const char* operation, const Rectangles<const T>& matrices, const Body& body) {
  if (matrices.batch == 0 || matrices.rows == 0 || matrices.columns == 0) return;
  if (matrices.rows > kLargestTiny || matrices.columns > kLargestTiny)
    throw Error(std::string(operation) + ": expected matrices of at most 4 x 4, got " +
                shape(matrices));
  by_tiny_size(matrices.rows, [&](auto rows) {
    by_tiny_size(matrices.columns, [&](auto columns) { body(rows, columns); });
  });
}

}  // namespace

template <typename T>
void polar(Rectangles<const T> matrices, PolarKind kind, Rectangles<T> result, T* margin,
           PolarFactors<T> factors, const Stream& stream) {
  constexpr const char* kName = "keel::polar";
  require_polar_shapes(kName, "result", matrices, kind, result);
  require_polar_factors(kName, matrices, factors);
  const bool empty = matrices.rows == 0 || matrices.columns == 0;
  if (empty && margin != nullptr && matrices.batch > 0)
    tiny::launch(kName, fill<T>, matrices.batch, stream, matrices.batch,
                 std::numeric_limits<T>::infinity(), margin);
  by_shape(kName, matrices, [&](auto rows, auto columns) {
    tiny::launch(kName, polar_kernel<T, decltype(rows)::value, decltype(columns)::value>,
                 matrices.batch, stream, matrices, kind, result, margin, factors);
  });
}

template <typename T>
void polar_backward(Rectangles<const T> matrices, Rectangles<const T> dL_dresult, PolarKind kind,
                    Rectangles<T> dL_dmatrix, const Stream& stream) {
  constexpr const char* kName = "keel::polar_backward";
  check_polar_backward(kName, matrices, kind, dL_dresult, dL_dmatrix);
  by_shape(kName, matrices, [&](auto rows, auto columns) {
    tiny::launch(kName, polar_backward_kernel<T, decltype(rows)::value, decltype(columns)::value>,
                 matrices.batch, stream, matrices, dL_dresult, kind, dL_dmatrix);
  });
}

template <typename T>
void polar_backward_from_factors(Rectangles<const T> result, PolarFactors<const T> factors,
                                 Rectangles<const T> dL_dresult, Rectangles<T> dL_dmatrix,
                                 const Stream& stream) {
  constexpr const char* kName = "keel::polar_backward_from_factors";
  check_polar_from_factors(kName, result, factors, dL_dresult, dL_dmatrix);
  by_shape(kName, result, [&](auto rows, auto columns) {
    tiny::launch(kName,
                 polar_from_factors_kernel<T, decltype(rows)::value, decltype(columns)::value>,
                 result.batch, stream, result, factors, dL_dresult, dL_dmatrix);
  });
}

#define KEEL_STAGES(T) \
  KEEL_STAGE(polar, T) KEEL_STAGE(polar_backward, T) KEEL_STAGE(polar_backward_from_factors, T)
KEEL_FOR_REAL(KEEL_STAGES)
#undef KEEL_STAGES

}  // namespace keel::cuda
