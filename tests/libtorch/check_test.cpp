#include "support.h"

#include <gtest/gtest.h>

namespace keel::test {
namespace {

TEST(Check, ShapesTypesAndDevices) {
  EXPECT_TRUE(
      fails_with("keel::eigh: expected a tensor, got an undefined one", [] { eigh(Tensor()); }));
  EXPECT_TRUE(fails_with("keel::eigh: expected (..., n, n), got (4, 3)", [] {
    eigh(torch::zeros({4, 3}));
  }));
  EXPECT_TRUE(fails_with("keel::eigh: expected (..., n, n), got (2, 4, 3)", [] {
    eigh(torch::zeros({2, 4, 3}));
  }));
  EXPECT_TRUE(
      fails_with("keel::eigh: expected (..., n, n), got (4)", [] { eigh(torch::zeros({4})); }));
  EXPECT_TRUE(
      fails_with("keel::spectral: expected (..., n, n), got ()", [] { sqrtm(torch::zeros({})); }));
  EXPECT_TRUE(
      fails_with("keel::eigh: expected float16, bfloat16, float32 or float64, got Long", [] {
        eigh(torch::zeros({2, 2}, at::kLong));
      }));
  EXPECT_TRUE(fails_with(
      "keel::spectral: expected float16, bfloat16, float32 or float64, got ComplexFloat", [] {
        logm(torch::zeros({2, 2}, at::kComplexFloat));
      }));
  EXPECT_TRUE(fails_with("keel::eigh: expected a dense tensor, got layout Sparse",
                         [] { eigh(torch::eye(3).to_sparse()); }));
  EXPECT_TRUE(fails_with("keel::eigh: expected (..., n, n), got (4, 3)", [] {
    eigh(torch::zeros({4, 3}, at::kMeta));
  }));
}

TEST(Check, RulesAndTheirParameters) {
  const Tensor m = torch::eye(3);
  EXPECT_TRUE(fails_with("terms >= 1", [&] { eigh(m, PowerIteration{0}); }));
  EXPECT_TRUE(fails_with("keel::eigh: ", [&] { eigh(m, PowerIteration{0}); }));
  EXPECT_TRUE(fails_with("width > 0", [&] { eigh(m, Lorentzian{-1}); }));
  EXPECT_TRUE(fails_with("tolerance >= 0", [&] { eigh(m, Masked{-1.0}); }));
  EXPECT_TRUE(fails_with("count >= 1", [&] { projector(m, LeadingCount{0}); }));
  EXPECT_TRUE(fails_with("in (0, 1], got 1.5", [&] { projector(m, LeadingEnergy{1.5}); }));
  EXPECT_TRUE(fails_with("terms >= 1", [&] { sqrtm(m, Exact{0}); }));
  EXPECT_TRUE(fails_with("finite exponent", [&] { powm(m, INFINITY); }));
}

TEST(Check, NamesFromOutside) {
  const auto call = [](const char* name, std::vector<c10::IValue> arguments) {
    const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
    auto stack = std::move(arguments);
    op.callBoxed(stack);
    return stack;
  };
  const Tensor m = torch::eye(3);
  const c10::IValue none;
  EXPECT_TRUE(fails_with("power_iteration", [&] { call("keel::eigh", {m, "magic", none}); }));
  EXPECT_TRUE(fails_with("\"magic\"", [&] { call("keel::eigh", {m, "magic", none}); }));
  EXPECT_TRUE(fails_with("whole number of terms", [&] { call("keel::eigh", {m, "taylor", 2.5}); }));
  const auto spectral_with = [&](const char* function, const char* policy,
                                 std::vector<double> parameters) {
    return call("keel::spectral", {m, function, 1.0, policy, parameters, "exact", none});
  };
  EXPECT_TRUE(
      fails_with("keel::spectral: expected rank policy full, leading_count, "
                 "leading_energy or algorithm1, got 'half'",
                 [&] { spectral_with("sqrt", "half", {}); }));
  EXPECT_TRUE(fails_with("keel::spectral: rank policy 'leading_count' expected [count], got 0",
                         [&] { spectral_with("sqrt", "leading_count", {}); }));
  EXPECT_TRUE(
      fails_with("rank policy 'algorithm1' expected [eps, rayleigh_tolerance, energy, ", [&] {
        spectral_with("sqrt", "algorithm1", {1, 2});
      }));
  EXPECT_TRUE(fails_with("inv_sqrt", [&] { spectral_with("cosine", "full", {}); }));

  const Tensor values = torch::ones({3});
  const auto backward = [&](const c10::IValue& grad_values, const c10::IValue& grad_vectors) {
    return call("keel::eigh_backward", {grad_values, grad_vectors, values, m, "masked", none});
  };
  EXPECT_TRUE(
      fails_with("keel::eigh_backward: expected grad_values with one number per eigenvector of (3, "
                 "3), got (2)",
                 [&] { backward(torch::ones({2}), none); }));
  EXPECT_TRUE(
      fails_with("keel::eigh_backward: expected grad_vectors of type Float, got Double", [&] {
        backward(none, torch::ones({3, 3}, at::kDouble));
      }));
  EXPECT_EQ(backward(none, none)[0].toTensor().abs().sum().item<float>(), 0);
}

}  // namespace
}  // namespace keel::test
