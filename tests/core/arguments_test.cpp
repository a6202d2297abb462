// What every stage says about arguments that break its contract: memory that is missing or shared, negative sizes, and
// gates, residuals and ReLU where they would be ignored.

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "keel/affine.h"
#include "keel/eigh.h"
#include "keel/gradient_rule.h"
#include "keel/layer_matrix.h"
#include "keel/moments.h"
#include "keel/polar.h"
#include "keel/running_average.h"
#include "keel/spectral.h"
#include "keel/svd.h"
#include "keel/weight_backward.h"
#include "keel/whiten.h"
#include "support/errors.h"

namespace keel::testing {
namespace {

/// Memory of two 3 x 3 matrices, as often as a stage needs it, and views of it.
struct Arguments : ::testing::Test {
  std::vector<double> memory = std::vector<double>(400, 1.0);
  std::vector<std::int64_t> rank = {3, 3};
  double* const values = memory.data() + 380;
  const SpectralFunction root{SpectralFunction::Kind::inv_sqrt};

  Matrices<double> matrices(std::int64_t which) {
    return contiguous(memory.data() + 18 * which, 2, 3);
  }
  Rectangles<double> rectangles(std::int64_t which) {
    return contiguous(memory.data() + 18 * which, 2, 3, 3);
  }
  Activations<double> activations(std::int64_t which) {
    return {memory.data() + 200 + 24 * which, 2, 6, 2, 2};
  }
  static Matrices<double> null() { return {nullptr, 2, 3, 3, 9}; }
};

TEST_F(Arguments, MemoryThatIsMissingIsNamed) {
  const auto a = matrices(0), b = matrices(1), c = matrices(2);
  const auto in = EighOrder::descending;
  const std::string got = "of shape (2, 3, 3), got null";
  EXPECT_TRUE(refuses({"keel::eigh: expected vectors " + got},
                      [&] { cpu::eigh<double>(a, values, {}, in); }));
  EXPECT_TRUE(refuses({"keel::eigh: expected matrices " + got},
                      [&] { cpu::eigh<double>(null(), values, b, in); }));
  EXPECT_TRUE(refuses({"keel::reference::eigh: expected vectors " + got},
                      [&] { reference::eigh(a, values, {}, in); }));
  EXPECT_TRUE(refuses({"keel::eigh_backward: expected dL_dmatrix " + got},
                      [&] { cpu::eigh_backward<double>(Masked{}, values, a, nullptr, {}, {}); }));
  EXPECT_TRUE(refuses({"keel::spectral: expected result " + got},
                      [&] { cpu::spectral<double>(root, values, a, rank.data(), {}); }));
  EXPECT_TRUE(refuses({"keel::spectral: expected 2 ranks, got null"},
                      [&] { cpu::spectral<double>(root, values, a, nullptr, b); }));
  EXPECT_TRUE(refuses({"keel::spectral_rank: expected matrices " + got}, [&] {
    cpu::spectral_rank<double>(Algorithm1{}, {}, values, a, rank.data());
  }));
  EXPECT_TRUE(refuses({"keel::spectral_backward: expected dL_dresult " + got}, [&] {
    cpu::spectral_backward<double>(root, Exact{}, values, a, rank.data(), {}, b);
  }));
  EXPECT_TRUE(refuses({"keel::spectral_second_backward: expected dL_dresult " + got}, [&] {
    cpu::spectral_second_backward<double>(root, values, a, {}, b, {}, c);
  }));
  EXPECT_TRUE(refuses({"keel::layer_matrix: expected state.vectors " + got}, [&] {
    cpu::layer_matrix<double>(Zca{}, a, b, {values, {}, rank.data()});
  }));
  EXPECT_TRUE(refuses({"keel::running_average: expected running.matrix " + got}, [&] {
    std::int64_t batches = 0;
    cpu::running_average<double>(0.1, 0, values, a, b, {values + 6, {}, nullptr, &batches});
  }));
  EXPECT_TRUE(refuses({"keel::weight_backward: expected cross " + got}, [&] {
    cpu::weight_backward<double>(nullptr, a, nullptr, {}, values, nullptr, {}, {});
  }));
  const Rectangles<double> nowhere{nullptr, 2, 3, 3, 3, 9};
  EXPECT_TRUE(refuses({"keel::svd: expected right " + got},
                      [&] { cpu::svd<double>(rectangles(0), values, rectangles(1), nowhere); }));
  EXPECT_TRUE(refuses({"keel::polar: expected result " + got},
                      [&] { cpu::polar<double>(rectangles(0), PolarKind::rotation, nowhere); }));
  EXPECT_TRUE(
      refuses({"keel::polar_backward_from_factors: expected factors of (2, 3, 3), got null"}, [&] {
        cpu::polar_backward_from_factors<double>(rectangles(0), {}, rectangles(1), rectangles(2));
      }));
  auto x = activations(0), missing = x;
  missing.data = nullptr;
  EXPECT_TRUE(refuses({"keel::moments: expected input (2, 6, 2) in 2 groups, got null"},
                      [&] { cpu::moments<double>(missing, values, a); }));
  EXPECT_TRUE(refuses({"keel::moments: expected covariance " + got},
                      [&] { cpu::moments<double>(x, values, null()); }));
  EXPECT_TRUE(refuses({"keel::affine: expected output (2, 6, 2) in 2 groups, got null"},
                      [&] { cpu::affine<double>(a, nullptr, nullptr, x, missing); }));
}

TEST_F(Arguments, NegativeSizesAreNamed) {
  const auto a = contiguous(memory.data(), -1, 3), b = contiguous(memory.data(), 1, -3);
  for (const auto& wrong : {a, b}) {
    EXPECT_TRUE(refuses({": expected n >= 0 and batch >= 0, got ("},
                        [&] { reference::eigh(wrong, values, wrong, EighOrder::descending); }));
    EXPECT_TRUE(refuses({"keel::spectral: expected n >= 0 and batch >= 0, got ("},
                        [&] { cpu::spectral<double>(root, values, wrong, rank.data(), wrong); }));
    EXPECT_TRUE(refuses({"keel::eigh_backward: expected n >= 0 and batch >= 0, got ("}, [&] {
      cpu::eigh_backward<double>(Masked{}, values, wrong, nullptr, {}, wrong);
    }));
  }
}

TEST_F(Arguments, NothingNeedsNoMemory) {
  const auto none = contiguous<double>(nullptr, 0, 3), empty = contiguous<double>(nullptr, 2, 0);
  for (const auto& each : {none, empty}) {
    cpu::eigh<double>(each, nullptr, each, EighOrder::ascending);
    cpu::eigh_backward<double>(Masked{}, nullptr, each, nullptr, {}, {});
    cpu::spectral<double>(root, nullptr, each, rank.data(), {});
    cpu::weight_backward<double>(nullptr, each, nullptr, each, nullptr, nullptr, {}, {});
  }
  Activations<double> x = activations(0);
  x.data = nullptr;
  x.batch = 0;
  cpu::affine<double>(matrices(0), nullptr, nullptr, x, x);
}

TEST_F(Arguments, SharedMemoryIsNamed) {
  const auto a = matrices(0), b = matrices(1), c = matrices(2);
  const auto inside = contiguous(memory.data() + 7, 2, 3);
  const std::string got = ", got memory that they share";
  for (const auto& other : {a, inside})
    EXPECT_TRUE(refuses({"keel::eigh: expected vectors apart from matrices" + got},
                        [&] { cpu::eigh<double>(a, values, other, EighOrder::ascending); }));
  EXPECT_TRUE(refuses({"keel::svd: expected left apart from matrices" + got}, [&] {
    cpu::svd<double>(rectangles(0), values, rectangles(0), rectangles(1));
  }));
  EXPECT_TRUE(refuses(
      {"keel::weight_backward: expected matrix apart from layer_matrix" + got},
      [&] { cpu::weight_backward<double>(nullptr, a, nullptr, b, values, nullptr, c, a); }));
  EXPECT_TRUE(refuses(
      {"keel::running_average: expected running.matrix apart from layer_matrix" + got}, [&] {
        std::int64_t batches = 0;
        cpu::running_average<double>(0.1, 0, values, a, b, {values + 6, b, nullptr, &batches});
      }));
  auto x = activations(0), y = activations(1), shifted = x;
  shifted.data += 5;
  for (const auto& output : {x, shifted})
    EXPECT_TRUE(refuses({"keel::affine: expected output apart from input" + got},
                        [&] { cpu::affine<double>(a, nullptr, nullptr, x, output); }));
  EXPECT_TRUE(refuses({"keel::affine_backward: expected dL_dinput apart from input" + got},
                      [&] { cpu::affine_backward<double>(a, x, b, nullptr, y, values, y); }));
}

// The left and the right half of the same rows, and a last row that the next array's first one touches.
TEST_F(Arguments, ViewsThatTakeTurnsInMemoryAreValid) {
  std::iota(memory.begin(), memory.end(), 1.0);
  const Matrices<double> left{memory.data(), 2, 3, 6, 18}, right{memory.data() + 3, 2, 3, 6, 18};
  cpu::eigh<double>(left, values, right, EighOrder::descending);
  const auto packed = matrices(4), next = matrices(5);
  for (std::int64_t b = 0; b < 2; ++b)
    for (std::int64_t i = 0; i < 9; ++i) packed[b][i] = left[b][i / 3 * 6 + i % 3];
  cpu::eigh<double>(packed, values + 6, next, EighOrder::descending);
  for (std::int64_t i = 0; i < 6; ++i) EXPECT_EQ(values[i], values[i + 6]) << i;
}

TEST_F(Arguments, WhatWouldBeIgnoredIsNamed) {
  const auto a = matrices(0), b = matrices(1);
  const auto x = activations(0), y = activations(1), z = activations(2);
  EXPECT_EQ(error_of([&] { cpu::affine<double>(a, nullptr, nullptr, x, y.gated(z.data)); }),
            "keel::affine: expected output without a gate, got one with it");
  EXPECT_EQ(
      error_of(
          [&] { cpu::affine_backward<double>(a, x.with_relu(), {}, nullptr, {}, nullptr, y); }),
      "keel::affine_backward: expected dL_doutput without a residual or ReLU, got one with ReLU");
  EXPECT_EQ(
      error_of([&] { cpu::cross_moments<double>(x.plus(z.data), y, nullptr, values, b); }),
      "keel::cross_moments: expected left without a residual or ReLU, got one with a residual");
  const WhitenState<double> state{values, a, b, {values + 6, matrices(2), rank.data()}};
  EXPECT_EQ(
      error_of([&] { cpu::whiten<double>(Zca{}, x.gated(z.data), nullptr, nullptr, state, y); }),
      "keel::whiten: expected input without a gate, residual or ReLU, got one with a gate");
}

}  // namespace
}  // namespace keel::testing
