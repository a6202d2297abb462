#pragma once

#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/types.h>

#include <functional>
#include <string>
#include <vector>

#include "keel/torch/keel.h"
#include "support/finite_differences.h"
#include "support/margins.h"

namespace keel::test {

using torch::Tensor;
using Tensors = std::vector<Tensor>;
using Loss = std::function<Tensor(const Tensor&)>;

inline Tensor random(at::IntArrayRef shape, std::uint64_t seed, at::ScalarType type = at::kDouble) {
  auto generator = at::detail::createCPUGenerator(seed);
  return torch::randn(shape, generator, at::TensorOptions(at::kDouble)).to(type);
}

inline Tensor random_symmetric(at::IntArrayRef shape, std::uint64_t seed) {
  const Tensor a = random(shape, seed);
  return (a + a.mT()) / 2;
}

/// A dense matrix with these eigenvalues.
inline Tensor with_spectrum(const std::vector<double>& values, std::uint64_t seed = 1) {
  const std::int64_t n = values.size();
  const Tensor q = std::get<0>(torch::linalg_qr(random({n, n}, seed)));
  const Tensor m = q.matmul(torch::diag(torch::tensor(values, at::kDouble))).matmul(q.t());
  return (m + m.t()) / 2;
}

/// Eigenvalues in steps of `ratio`, the largest 1.
inline Tensor geometric_spectrum(std::int64_t n, double ratio, std::uint64_t seed = 1) {
  std::vector<double> values{1.0};
  while (std::int64_t(values.size()) < n) values.push_back(values.back() * ratio);
  return with_spectrum(values, seed);
}

inline Tensor gradient(const Loss& loss, const Tensor& matrix) {
  const Tensor m = matrix.detach().clone().requires_grad_(true);
  return torch::autograd::grad({loss(m)}, {m})[0];
}

/// The symmetric dL/dM by fourth-order differences along each symmetric direction.
inline Tensor difference_gradient(const Loss& loss, const Tensor& matrix, double step = 2e-4) {
  const torch::NoGradGuard no_grad;
  const std::int64_t n = matrix.size(-1);
  const Tensor result = torch::zeros_like(matrix);
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j <= i; ++j) {
      const auto along = [&](double distance) {
        Tensor moved = matrix.detach().clone();
        moved[i][j] += distance;
        if (i != j) moved[j][i] += distance;
        return loss(moved).item<double>();
      };
      const double slope = testing::central_difference(along, step);
      result[i][j] = result[j][i] = i == j ? slope : slope / 2;
    }
  }
  return result;
}

/// |a - b| / |b| in the Frobenius norm; NaN if either is not finite.
inline double relative_error(const Tensor& a, const Tensor& b) {
  const Tensor x = a.detach().to(at::kDouble), y = b.detach().to(at::kDouble);
  return ((x - y).norm() / y.norm()).item<double>();
}

/// The decomposition in the order that rank policies use.
inline Eigh leading_first(const Tensor& matrix, const GradientRule& rule = Masked{}) {
  return eigh(matrix, rule, {.descending = true});
}

inline bool all_finite(const Tensor& tensor) { return tensor.isfinite().all().item<bool>(); }
inline bool all_nan(const Tensor& tensor) { return tensor.isnan().all().item<bool>(); }

/// Passes if `call` throws a c10::Error whose message contains `part`.
template <typename Call>
::testing::AssertionResult fails_with(const std::string& part, Call&& call) {
  try {
    call();
  } catch (const c10::Error& error) {
    const std::string message = error.what_without_backtrace();
    if (message.find(part) != std::string::npos) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << "expected '" << part << "' in: " << message;
  }
  return ::testing::AssertionFailure() << "no error; expected '" << part << "'";
}

/// Calls the operator of that name with any arguments.
template <typename... Arguments>
Tensors call_operator(const char* name, Arguments&&... arguments) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
  torch::jit::Stack stack;
  torch::jit::push(stack, std::forward<Arguments>(arguments)...);
  op.callBoxed(&stack);
  Tensors results;
  for (const c10::IValue& value : stack) results.push_back(value.toTensor());
  return results;
}

}  // namespace keel::test
