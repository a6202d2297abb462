#include "keel/svd.h"

#include <algorithm>
#include <vector>

#include "instantiate.h"
#include "kernels.h"
#include "scratch.h"
#include "svd_finish.h"

namespace keel::cpu {
namespace {

constexpr int kMaxSweeps = 30;  // five or six suffice in practice
constexpr std::int64_t kMostEntries =
    64L * 64;  // of a pack's matrix: beyond, the pack outgrows the cache

/// Packs that fill too few lanes, and matrices whose pack outgrows the cache, go one by one.
template <typename T>
bool use_lanes(std::int64_t m, std::int64_t n, std::int64_t batch) {
  const std::int64_t lanes = kernels<T>().lanes;
  return m * n <= kMostEntries && batch >= (n <= 8 ? lanes / 4 : lanes / 2);
}

/// In the next wider type: for float that is this solver in double, for double the slow one that always answers.
template <typename T>
void fall_back(Rectangles<const T> matrices, std::int64_t index, T* values, Rectangles<T> left,
               Rectangles<T> right) {
  const std::int64_t m = matrices.rows, n = matrices.columns, k = std::min(m, n);
  std::vector<double> a(std::size_t(m * n)), s(std::size_t(k), 0), u(std::size_t(m * k)),
      v(std::size_t(k * n));
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j)
      a[std::size_t(i * n + j)] = double(matrices[index][i * matrices.row_stride + j]);
  const auto matrix = contiguous<const double>(a.data(), 1, m, n);
  const auto u_of_it = contiguous(u.data(), 1, m, k), v_of_it = contiguous(v.data(), 1, k, n);
  if constexpr (sizeof(T) < sizeof(double))
    svd<double>(matrix, s.data(), u_of_it, v_of_it, nullptr, serial());
  else
    reference::svd(matrix, s.data(), u_of_it, v_of_it);
  const auto copy = [&](const std::vector<double>& from, Rectangles<T> to) {
    for (std::int64_t i = 0; i < to.rows; ++i)
      for (std::int64_t j = 0; j < to.columns; ++j)
        to[index][i * to.row_stride + j] = T(from[std::size_t(i * to.columns + j)]);
  };
  std::transform(s.begin(), s.end(), values + index * k, [](double x) { return T(x); });
  copy(u, left);
  copy(v, right);
}

}  // namespace

template <typename T>
void svd(Rectangles<const T> matrices, T* values, Rectangles<T> left, Rectangles<T> right,
         SvdStatus* status, const Executor& executor) {
  require_svd_shapes("keel::svd", matrices, left, right);
  const std::int64_t m = matrices.rows, n = matrices.columns, k = std::min(m, n),
                     batch = matrices.batch;
  std::vector<SvdStatus> own_status;
  if (status == nullptr) {
    own_status.resize(std::size_t(batch));
    status = own_status.data();
  }
  const Kernels<T>& kernel = kernels<T>();
  const bool lanes = use_lanes<T>(m, n, batch);
  const std::int64_t pack = lanes ? kernel.lanes : 1, packs = (batch + pack - 1) / pack;
  const std::int64_t per_piece = std::max<std::int64_t>(1, 256 / (m * n + 1));
  executor((packs + per_piece - 1) / per_piece, [&](std::int64_t piece) {
    Scratch<T> scratch((lanes ? kernel.svd_lanes_scratch : kernel.svd_alone_scratch)(m, n));
    for (std::int64_t at = piece * per_piece; at < std::min(packs, (piece + 1) * per_piece); ++at) {
      const std::int64_t first = at * pack, count = std::min(pack, batch - first);
      (lanes ? kernel.svd_lanes : kernel.svd_alone)(first, count, matrices, values, left, right,
                                                    status, kMaxSweeps, scratch);
      for (std::int64_t b = first; b < first + count; ++b) {
        if (status[b] == SvdStatus::not_finite)
          svd_is_nan(b, k, values, left, right);
        else if (status[b] == SvdStatus::by_fallback)
          fall_back(matrices, b, values, left, right);
        else
          finish_svd(m, n, values + b * k, left[b], left.row_stride, right[b], right.row_stride);
      }
    }
  });
}

#define KEEL_STAGES(T) KEEL_STAGE(svd, T)
KEEL_FOR_REAL(KEEL_STAGES)
#undef KEEL_STAGES

}  // namespace keel::cpu
