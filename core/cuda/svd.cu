#include "keel/svd.h"

#include <algorithm>

#include "cuda/launch/launch.h"
#include "cuda/svd/paths.h"
#include "instantiate.h"
#include "shape.h"

namespace keel::cuda {

static constexpr const char* kName = "keel::svd";

template <typename T>
void svd(Rectangles<const T> matrices, T* values, Rectangles<T> left, Rectangles<T> right,
         SvdStatus* status, const Stream& stream) {
  check_svd(kName, matrices, values, left, right);
  const std::int64_t m = std::max(matrices.rows, matrices.columns),
                     n = std::min(matrices.rows, matrices.columns);
  if (matrices.batch == 0) return;
  if (n == 0) {
    static_assert(sizeof(SvdStatus) == 1 && int(SvdStatus::converged) == 0);
    if (status != nullptr)
      check(kName, cudaMemsetAsync(status, 0, std::size_t(matrices.batch), native(stream)));
    return;
  }
  if (!svd_supports(m, n))
    throw Error(std::string(kName) + ": expected m n < 2^30 where min(m, n) <= 512, got " +
                shape(matrices));
  const SvdPath path = svd_path<T>(m, n, matrices.batch, this_card());
  if (path == SvdPath::cusolver) return svd_cusolver(matrices, values, left, right, status, stream);
  if (path == SvdPath::slices) return svd_slices(matrices, values, left, right, status, stream);
  if (path == SvdPath::tiny) return svd_tiny(matrices, values, left, right, status, stream);
  if (path == SvdPath::jacobi)
    return svd_jacobi<T>(matrices, values, left, right, status, nullptr, stream);
  const Scratch<bool> unsolved(kName, stream, matrices.batch);
  if (path == SvdPath::grid)
    svd_polish_grid<T>(matrices, values, left, right, status, unsolved, stream);
  else
    svd_polish_block<T>(matrices, values, left, right, status, unsolved,
                        path == SvdPath::one_launch, stream);
  svd_jacobi<T>(matrices, values, left, right, status, unsolved, stream);
}

#define KEEL_STAGES(T) KEEL_STAGE(svd, T)
KEEL_FOR_REAL(KEEL_STAGES)
#undef KEEL_STAGES

}  // namespace keel::cuda
