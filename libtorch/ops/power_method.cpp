#include "keel/torch/power_method.h"

#include <cmath>
#include <map>
#include <mutex>
#include <numbers>
#include <vector>

#include "check.h"
#include "matrices.h"
#include "ops/calls.h"

namespace keel::ops {
namespace {

constexpr const char* kPowerMethod = "keel::power_method";

/// splitmix64's output function: a counter in, 64 mixed bits out.
std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// In (0, 1), never at its ends: the logarithm below stays finite.
double uniform(std::uint64_t counter) { return (double(mixed(counter) >> 11) + 0.5) * 0x1p-53; }

double normal(std::uint64_t stream, std::uint64_t index) {
  return std::sqrt(-2 * std::log(uniform(stream + 2 * index))) *
         std::cos(2 * std::numbers::pi * uniform(stream + 2 * index + 1));
}

/// (n, n): column i is where eigenvector i starts. Our own generator: LibTorch's may change.
Tensor power_method_starts(const Tensor& matrix, std::int64_t seed) {
  const std::int64_t n = matrix.size(-1);
  const Tensor starts = at::empty({n, n}, at::kDouble);
  double* const entries = starts.data_ptr<double>();
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint64_t stream = mixed(mixed(mixed(seed) + n) + i);
    for (std::int64_t row = 0; row < n; ++row) entries[row * n + i] = normal(stream, row);
  }
  return starts.to(matrix.options());
}

/// Off the host the numbers are moved once and copied there from then on: a graph that is being captured
/// cannot wait for the host.
Tensor power_method_starts_on_device(const Tensor& matrix, std::int64_t seed) {
  using Key = std::tuple<std::string, at::ScalarType, std::int64_t, std::int64_t>;
  static std::mutex guard;
  static auto& known = *new std::map<Key, Tensor>;  // never freed: the device may be gone before it
  const std::lock_guard<std::mutex> lock(guard);
  Tensor& starts = known[{matrix.device().str(), matrix.scalar_type(), matrix.size(-1), seed}];
  if (!starts.defined()) starts = power_method_starts(matrix, seed);
  return starts.clone();
}

Tensor power_method_starts_meta(const Tensor& matrix, std::int64_t /*seed*/) {
  return matrix.new_empty_symint(matrix.sym_sizes().slice(matrix.dim() - 2, 2));
}

/// Plain differentiable operations throughout, so that autograd unrolls it: that is the baseline.
std::tuple<Tensor, Tensor> power_method(const Tensor& matrix, std::int64_t iterations,
                                        std::int64_t seed) {
  static const auto starts_of =
      operator_named<decltype(power_method_starts)>("keel::power_method_starts");
  check_matrices(kPowerMethod, matrix);
  TORCH_CHECK_VALUE(iterations >= 1, kPowerMethod, ": expected iterations >= 1, got ", iterations);
  const auto type = matrix.scalar_type();
  const Tensor input = in_compute_type(matrix);
  const std::int64_t n = input.sym_size(-1).guard_int(__FILE__, __LINE__);
  if (n == 0) return {input.sum(-1).to(type), input.clone().to(type)};
  // Autocast would take its products to half.
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);

  const Tensor starts = [&] {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;  // constants: nothing to record
    return starts_of.call(input, seed);
  }();
  Tensor deflated = (input + input.mT()) / 2;
  std::vector<Tensor> values, vectors;
  for (std::int64_t i = 0; i < n; ++i) {
    Tensor v = starts.narrow(-1, i, 1);
    for (std::int64_t k = 0; k < iterations; ++k) {
      v = deflated.matmul(v);
      v = v / v.norm(2, {-2}, /*keepdim=*/true);
    }
    const Tensor image = deflated.matmul(v);
    values.push_back((v * image).sum({-2, -1}));
    vectors.push_back(v.squeeze(-1));
    deflated = deflated - image.matmul(v.mT());
  }
  return {at::stack(values, -1).to(type), at::stack(vectors, -1).to(type)};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(keel, m) {
  m.def("power_method_starts(Tensor matrix, int seed) -> Tensor");
  m.def(
      "power_method(Tensor matrix, int iterations=19, int seed=0)"
      " -> (Tensor values, Tensor vectors)",
      &power_method);
}
TORCH_LIBRARY_IMPL(keel, CPU, m) { m.impl("power_method_starts", &power_method_starts); }
TORCH_LIBRARY_IMPL(keel, CUDA, m) { m.impl("power_method_starts", &power_method_starts_on_device); }
TORCH_LIBRARY_IMPL(keel, Meta, m) { m.impl("power_method_starts", &power_method_starts_meta); }

}  // namespace keel::ops

namespace keel {

Eigh power_method(const torch::Tensor& matrix, const PowerMethod& options) {
  ops::check_matrices("keel::power_method", matrix);
  using Signature =
      std::tuple<at::Tensor, at::Tensor>(const at::Tensor&, std::int64_t, std::int64_t);
  static const auto op = ops::operator_named<Signature>("keel::power_method");
  auto [values, vectors] = op.call(matrix, options.iterations, options.seed);
  return {std::move(values), std::move(vectors)};
}

}  // namespace keel
