#include "lab/models/power_method.h"

#include <cmath>
#include <map>
#include <mutex>
#include <numbers>
#include <string>
#include <vector>

#include "lab/random.h"

namespace keel::lab {
namespace {

using torch::Tensor;

/// splitmix64's output function: maps a counter to 64 mixed bits.
std::uint64_t mixed(std::uint64_t x) { return hashed(x + kGolden); }

/// In the open interval (0, 1), so that the logarithm below is finite.
double uniform(std::uint64_t counter) { return (double(mixed(counter) >> 11) + 0.5) * 0x1p-53; }

double normal(std::uint64_t stream, std::uint64_t index) {
  return std::sqrt(-2 * std::log(uniform(stream + 2 * index))) *
         std::cos(2 * std::numbers::pi * uniform(stream + 2 * index + 1));
}

/// (n, n): column i is the start for eigenvector i. Uses our own generator, because LibTorch's may change.
Tensor new_starts(const Tensor& matrix, std::int64_t seed) {
  const std::int64_t n = matrix.size(-1);
  const Tensor starts = torch::empty({n, n}, torch::kDouble);
  double* const entries = starts.data_ptr<double>();
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint64_t stream =
        mixed(mixed(mixed(std::uint64_t(seed)) + std::uint64_t(n)) + std::uint64_t(i));
    for (std::int64_t row = 0; row < n; ++row)
      entries[row * n + i] = normal(stream, std::uint64_t(row));
  }
  return starts.to(matrix.options());
}

/// Made once per shape, because host data cannot be copied during graph capture.
Tensor starts_of(const Tensor& matrix, std::int64_t seed) {
  using Key = std::tuple<std::string, torch::Dtype, std::int64_t, std::int64_t>;
  static std::mutex guard;
  static auto& known = *new std::map<Key, Tensor>;  // never freed: the device may be gone before it
  const std::lock_guard<std::mutex> lock(guard);
  Tensor& starts = known[{matrix.device().str(), matrix.scalar_type(), matrix.size(-1), seed}];
  if (!starts.defined()) starts = new_starts(matrix, seed);
  return starts;
}

}  // namespace

std::tuple<Tensor, Tensor> power_method(const Tensor& matrix, const PowerMethod& options) {
  TORCH_CHECK_VALUE(matrix.dim() >= 2 && matrix.size(-1) == matrix.size(-2) && matrix.size(-1) > 0,
                    "keel::lab::power_method: expected (..., n, n), got ", matrix.sizes());
  term::check(options.kName, options);
  // Autocast would compute the products in half precision.
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const Tensor starts = starts_of(matrix, options.seed);
  // Plain differentiable operations throughout, so that autograd unrolls the iteration. That is the baseline.
  Tensor deflated = (matrix + matrix.mT()) / 2;
  std::vector<Tensor> values, vectors;
  for (std::int64_t i = 0; i < matrix.size(-1); ++i) {
    Tensor v = starts.narrow(-1, i, 1);
    for (std::int64_t k = 0; k < options.iterations; ++k) {
      v = deflated.matmul(v);
      v = v / v.norm(2, {-2}, /*keepdim=*/true);
    }
    const Tensor image = deflated.matmul(v);
    values.push_back((v * image).sum({-2, -1}));
    vectors.push_back(v.squeeze(-1));
    deflated = deflated - image.matmul(v.mT());
  }
  return {at::stack(values, -1), at::stack(vectors, -1)};
}

}  // namespace keel::lab
