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
      fails_with("keel::sqrtm: expected (..., n, n), got ()", [] { sqrtm(torch::zeros({})); }));
  EXPECT_TRUE(
      fails_with("keel::eigh: expected float16, bfloat16, float32, float64, complex64 or "
                 "complex128, got int64",
                 [] {
                   eigh(torch::zeros({2, 2}, at::kLong));
                 }));
  EXPECT_TRUE(
      fails_with("keel::special_procrustes: expected float16, bfloat16, float32 or float64, got "
                 "complex64; it has no complex version",
                 [] {
                   special_procrustes(torch::zeros({2, 2}, at::kComplexFloat));
                 }));
  EXPECT_TRUE(fails_with("keel::eigh: expected a dense tensor, got layout Sparse",
                         [] { eigh(torch::eye(3).to_sparse()); }));
  EXPECT_TRUE(fails_with("keel::eigh: expected (..., n, n), got (4, 3)", [] {
    eigh(torch::zeros({4, 3}, at::kMeta));
  }));
}

TEST(Check, RulesAndTheirFields) {
  const Tensor m = torch::eye(3);
  EXPECT_TRUE(
      fails_with("keel::eigh: expected terms to be a whole number from 1 to 2147483647, got \"0\" "
                 "at character "
                 "23 of \"power_iteration(terms=0)\"",
                 [&] { eigh(m, PowerIteration{0}); }));
  EXPECT_TRUE(fails_with("width to be a finite number > 0", [&] { eigh(m, Lorentzian{-1}); }));
  EXPECT_TRUE(fails_with("width to be a finite number > 0", [&] { eigh(m, Lorentzian{NAN}); }));
  EXPECT_TRUE(fails_with("tolerance to be a finite number >= 0", [&] { eigh(m, Masked{-1.0}); }));
  EXPECT_TRUE(fails_with("count to be", [&] { projector(m, LeadingCount{0}); }));
  EXPECT_TRUE(fails_with("in (0, 1], got \"1.5\"", [&] { projector(m, LeadingEnergy{1.5}); }));
  EXPECT_TRUE(fails_with("keel::spectral: expected terms", [&] { sqrtm(m, Exact{0}); }));
  EXPECT_TRUE(fails_with("exponent to be a finite number", [&] { powm(m, INFINITY); }));
}

TEST(Check, TextsFromOutside) {
  const auto call = [](const char* name, std::vector<c10::IValue> arguments) {
    const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
    auto stack = std::move(arguments);
    op.callBoxed(stack);
    return stack;
  };
  const Tensor m = torch::eye(3);
  const c10::IValue none;
  const Tensor meta = m.to(at::kMeta);
  for (const Tensor& each : {m, meta}) {
    EXPECT_TRUE(fails_with(
        "keel::eigh: expected analytic, power_iteration, taylor, lorentzian or masked, got "
        "\"magic\"",
        [&] {
          call("keel::eigh", {each, "magic", false});
        }));
    EXPECT_TRUE(fails_with("terms to be a whole number", [&] {
      call("keel::eigh", {each, "taylor(terms=2.5)", false});
    }));
  }
  const auto spectral_with = [&](const char* function, const char* rank) {
    return call("keel::spectral", {m, function, rank, "exact"});
  };
  EXPECT_TRUE(
      fails_with("keel::spectral: expected full, leading_count, leading_energy or "
                 "leading_reliable, got \"half\"",
                 [&] { spectral_with("sqrt", "half"); }));
  EXPECT_TRUE(fails_with("keel::spectral: expected count=..., got \"counts\"",
                         [&] { spectral_with("sqrt", "leading_count(counts=1)"); }));
  EXPECT_TRUE(fails_with("inv_sqrt", [&] { spectral_with("cosine", "full"); }));
  EXPECT_EQ(call("keel::written", {"rank_policy", "leading_count"})[0].toStringRef(),
            "leading_count(count=1)");
  EXPECT_TRUE(fails_with("keel::written: expected kind spectral_rule", [&] {
    call("keel::written", {"rule", "masked"});
  }));

  const Tensor values = torch::ones({3});
  const auto backward = [&](const c10::IValue& grad_values, const c10::IValue& grad_vectors) {
    return call("keel::eigh_backward", {grad_values, grad_vectors, values, m, "masked"});
  };
  EXPECT_TRUE(
      fails_with("keel::eigh_backward: expected grad_values with one number per eigenvector of (3, "
                 "3), got (2)",
                 [&] { backward(torch::ones({2}), none); }));
  EXPECT_TRUE(
      fails_with("keel::eigh_backward: expected grad_vectors of type float32, got float64", [&] {
        backward(none, torch::ones({3, 3}, at::kDouble));
      }));
  EXPECT_EQ(backward(none, none)[0].toTensor().abs().sum().item<float>(), 0);
}

}  // namespace
}  // namespace keel::test
