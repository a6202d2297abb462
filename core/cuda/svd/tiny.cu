#include "cuda/svd/paths.h"

#include "cuda/matrix/tiny.cuh"
#include "formulas/svd_one_thread.h"
#include "instantiate.h"

namespace keel::cuda {
namespace {

template <typename T, int ROWS, int COLUMNS>
__global__ void __launch_bounds__(tiny::kThreads)
    tiny_kernel(Rectangles<const T> matrices, T* values, Rectangles<T> left, Rectangles<T> right,
                SvdStatus* status) {
  constexpr bool kWide = ROWS < COLUMNS;
  constexpr int kTall = kWide ? COLUMNS : ROWS, kNarrow = kWide ? ROWS : COLUMNS;
  // The vectors of the longer side have the matrix's shape and overwrite it.
  __shared__ tiny::Tile<T, ROWS, COLUMNS> longer;
  __shared__ tiny::Tile<T, kNarrow, kNarrow> shorter;
  __shared__ tiny::Tile<T, 1, kNarrow> value;
  const tiny::Share share(matrices.batch);
  longer.fetch(share, matrices);
  __syncthreads();
  if (share.has_one()) {
    const OneThreadSvd<T, kTall, kNarrow> solved(
        [&](int i, int j) { return kWide ? longer(j, i) : longer(i, j); });
    constexpr T kNaN = std::numeric_limits<T>::quiet_NaN();
#pragma unroll
    for (int j = 0; j < kNarrow; ++j) {
      const int place = solved.place(j);
      // The first of the left vector's largest entries is made positive.
      T peak = 0;
      int peak_row = 4;
#pragma unroll
      for (int i = 0; i < (kWide ? kNarrow : kTall); ++i) {
        const T x = kWide ? solved.right(i % kNarrow, j) : solved.left(i, j);
        const int row = kWide ? solved.column(i % kNarrow) : solved.row(i);
        const bool first = fabs(x) > fabs(peak) || (fabs(x) == fabs(peak) && row < peak_row);
        peak = first ? x : peak;
        peak_row = first ? row : peak_row;
      }
      const auto finished = [&](T x) {
        return solved.finite() ? (peak < 0 ? -x : x) + T(0) : kNaN;
      };
      value(0, place) = solved.finite() ? solved.true_size(solved.value(j)) : kNaN;
#pragma unroll
      for (int i = 0; i < kTall; ++i) {
        const int row = solved.row(i);
        (kWide ? longer(place, row) : longer(row, place)) = finished(solved.left(i, j));
      }
#pragma unroll
      for (int i = 0; i < kNarrow; ++i) {
        const int column = solved.column(i);
        (kWide ? shorter(column, place) : shorter(place, column)) = finished(solved.right(i, j));
      }
    }
    if (status != nullptr)
      status[share.index()] = !solved.finite()     ? SvdStatus::not_finite
                              : solved.converged() ? SvdStatus::converged
                                                   : SvdStatus::not_converged;
  }
  __syncthreads();
  value.put(share, tiny::rows_of(values, matrices.batch, kNarrow));
  longer.put(share, kWide ? right : left);
  shorter.put(share, kWide ? left : right);
}

}  // namespace

template <typename T>
void svd_tiny(Rectangles<const T> matrices, T* values, Rectangles<T> left, Rectangles<T> right,
              SvdStatus* status, const Stream& stream) {
  by_tiny_size(matrices.rows, [&](auto rows) {
    by_tiny_size(matrices.columns, [&](auto columns) {
      tiny::launch("keel::svd", tiny_kernel<T, decltype(rows)::value, decltype(columns)::value>,
                   matrices.batch, stream, matrices, values, left, right, status);
    });
  });
}

#define KEEL_STAGES(T) KEEL_STAGE(svd_tiny, T)
KEEL_FOR_REAL(KEEL_STAGES)
#undef KEEL_STAGES

}  // namespace keel::cuda
