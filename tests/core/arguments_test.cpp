// What every stage says about arguments that break its contract: memory that is missing or shared, negative sizes, and
// gates, residuals and ReLU where they would be ignored. tests/cuda/arguments_test.cpp compiles it for CUDA's stages, which
// say the same. They find out before they touch the memory, which is not the device's here.

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

#ifndef KEEL_BACKEND
#define KEEL_BACKEND cpu
#define KEEL_COMPUTES_HERE
#endif
namespace on = keel::KEEL_BACKEND;

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
                      [&] { on::eigh<double>(a, values, {}, in); }));
  EXPECT_TRUE(refuses({"keel::eigh: expected matrices " + got},
                      [&] { on::eigh<double>(null(), values, b, in); }));
  EXPECT_TRUE(refuses({"keel::reference::eigh: expected vectors " + got},
                      [&] { reference::eigh(a, values, {}, in); }));
  EXPECT_TRUE(refuses({"keel::eigh_backward: expected dL_dmatrix " + got},
                      [&] { on::eigh_backward<double>(Masked{}, values, a, nullptr, {}, {}); }));
  EXPECT_TRUE(refuses({"keel::spectral: expected result " + got},
                      [&] { on::spectral<double>(root, values, a, rank.data(), {}); }));
  EXPECT_TRUE(refuses({"keel::spectral: expected 2 ranks, got null"},
                      [&] { on::spectral<double>(root, values, a, nullptr, b); }));
  EXPECT_TRUE(refuses({"keel::spectral_rank: expected matrices " + got}, [&] {
    on::spectral_rank<double>(Algorithm1{}, {}, values, a, rank.data());
  }));
  EXPECT_TRUE(refuses({"keel::spectral_backward: expected dL_dresult " + got}, [&] {
    on::spectral_backward<double>(root, Exact{}, values, a, rank.data(), {}, b);
  }));
  EXPECT_TRUE(refuses({"keel::spectral_second_backward: expected dL_dresult " + got}, [&] {
    on::spectral_second_backward<double>(root, values, a, {}, b, {}, c);
  }));
  EXPECT_TRUE(refuses({"keel::layer_matrix: expected state.vectors " + got}, [&] {
    on::layer_matrix<double>(Zca{}, a, b, {values, {}, rank.data()});
  }));
  EXPECT_TRUE(refuses({"keel::running_average: expected running.matrix " + got}, [&] {
    std::int64_t batches = 0;
    on::running_average<double>(0.1, 0, values, a, b, {values + 6, {}, nullptr, &batches});
  }));
  const auto refuses_null = [&](const std::string& message, const auto& call) {
    EXPECT_TRUE(refuses({message + ", got null"}, call)) << message;
  };
  std::int64_t batches = 0;
  refuses_null("keel::eigh: expected 6 values",
               [&] { on::eigh<double>(a, nullptr, b, EighOrder::descending); });
  refuses_null("keel::eigh_backward: expected 6 values",
               [&] { on::eigh_backward<double>(Masked{}, nullptr, a, nullptr, {}, b); });
  refuses_null("keel::spectral: expected 6 values",
               [&] { on::spectral<double>(root, nullptr, a, rank.data(), b); });
  refuses_null("keel::spectral_rank: expected 2 ranks",
               [&] { on::spectral_rank<double>(FullRank{}, {}, values, a, nullptr); });
  refuses_null("keel::spectral_backward: expected 6 values", [&] {
    on::spectral_backward<double>(root, Exact{}, nullptr, a, rank.data(), b, c);
  });
  refuses_null("keel::spectral_second_backward: expected 6 values",
               [&] { on::spectral_second_backward<double>(root, nullptr, a, b, b, c, {}); });
  refuses_null("keel::layer_matrix: expected 6 values", [&] {
    on::layer_matrix<double>(Zca{}, a, b, {nullptr, c, rank.data()});
  });
  refuses_null("keel::layer_matrix_backward: expected 2 ranks", [&] {
    on::layer_matrix_backward<double>(Zca{}, Exact{}, a, {values, c, nullptr}, b, matrices(3));
  });
  refuses_null("keel::running_average: expected 6 means", [&] {
    on::running_average<double>(0.1, 0, nullptr, a, b, {values + 6, c, nullptr, &batches});
  });
  refuses_null("keel::running_average: expected 6 running means", [&] {
    on::running_average<double>(0.1, 0, values, a, b, {nullptr, c, nullptr, &batches});
  });
  refuses_null("keel::running_average: expected 1 number of batches", [&] {
    on::running_average<double>(0.1, 0, values, a, b, {values + 6, c, nullptr, nullptr});
  });
  refuses_null("keel::weight_backward: expected 6 sums", [&] {
    on::weight_backward<double>(nullptr, a, nullptr, b, nullptr, values, {}, {});
  });
  refuses_null("keel::svd: expected 6 values",
               [&] { on::svd<double>(rectangles(0), nullptr, rectangles(1), rectangles(2)); });
  refuses_null("keel::moments: expected 6 means",
               [&] { on::moments<double>(activations(0), nullptr, a); });
  refuses_null("keel::partial_moments: expected 25 sums",
               [&] { on::partial_moments<double>(activations(0), nullptr, nullptr); });
  refuses_null("keel::moments_from_partial: expected 6 means",
               [&] { on::moments_from_partial<double>(values, nullptr, nullptr, a); });
  refuses_null("keel::cross_moments: expected 6 sums", [&] {
    on::cross_moments<double>(activations(0), activations(1), nullptr, nullptr, a);
  });
  const WhitenState<double> state{values, a, b, {values + 6, c, rank.data()}};
  WhitenState<double> without = state;
  without.mean = nullptr;
  refuses_null("keel::whiten: expected 6 means", [&] {
    on::whiten<double>(Zca{}, activations(0), nullptr, nullptr, without, activations(1));
  });
  refuses_null("keel::whiten_backward: expected 6 dL_dweight", [&] {
    on::whiten_backward<double>(Zca{}, Exact{}, activations(0), activations(1), nullptr, state,
                                activations(2), nullptr, values);
  });
  refuses_null("keel::whiten_backward_apply: expected 24 sums", [&] {
    const double count = 4;
    on::whiten_backward_apply<double>(Zca{}, Exact{}, activations(0), activations(1), nullptr,
                                      state, nullptr, &count, activations(2));
  });
  EXPECT_TRUE(refuses({"keel::weight_backward: expected cross " + got}, [&] {
    on::weight_backward<double>(nullptr, a, nullptr, {}, values, nullptr, {}, {});
  }));
  const Rectangles<double> nowhere{nullptr, 2, 3, 3, 3, 9};
  EXPECT_TRUE(refuses({"keel::svd: expected right " + got},
                      [&] { on::svd<double>(rectangles(0), values, rectangles(1), nowhere); }));
  EXPECT_TRUE(refuses({"keel::polar: expected result " + got},
                      [&] { on::polar<double>(rectangles(0), PolarKind::rotation, nowhere); }));
  EXPECT_TRUE(
      refuses({"keel::polar_backward_from_factors: expected factors of (2, 3, 3), got null"}, [&] {
        on::polar_backward_from_factors<double>(rectangles(0), {}, rectangles(1), rectangles(2));
      }));
  auto x = activations(0), missing = x;
  missing.data = nullptr;
  EXPECT_TRUE(refuses({"keel::moments: expected input (2, 6, 2) in 2 groups, got null"},
                      [&] { on::moments<double>(missing, values, a); }));
  EXPECT_TRUE(refuses({"keel::moments: expected covariance " + got},
                      [&] { on::moments<double>(x, values, null()); }));
  EXPECT_TRUE(refuses({"keel::affine: expected output (2, 6, 2) in 2 groups, got null"},
                      [&] { on::affine<double>(a, nullptr, nullptr, x, missing); }));
}

TEST_F(Arguments, NegativeSizesAreNamed) {
  const auto a = contiguous(memory.data(), -1, 3), b = contiguous(memory.data(), 1, -3);
  for (const auto& wrong : {a, b}) {
    EXPECT_TRUE(refuses({": expected n >= 0 and batch >= 0, got ("},
                        [&] { reference::eigh(wrong, values, wrong, EighOrder::descending); }));
    EXPECT_TRUE(refuses({"keel::spectral: expected n >= 0 and batch >= 0, got ("},
                        [&] { on::spectral<double>(root, values, wrong, rank.data(), wrong); }));
    EXPECT_TRUE(refuses({"keel::eigh_backward: expected n >= 0 and batch >= 0, got ("}, [&] {
      on::eigh_backward<double>(Masked{}, values, wrong, nullptr, {}, wrong);
    }));
  }
}

#ifdef KEEL_COMPUTES_HERE
TEST_F(Arguments, NothingNeedsNoMemory) {
  const auto none = contiguous<double>(nullptr, 0, 3), empty = contiguous<double>(nullptr, 2, 0);
  for (const auto& each : {none, empty}) {
    on::eigh<double>(each, nullptr, each, EighOrder::ascending);
    on::eigh_backward<double>(Masked{}, nullptr, each, nullptr, {}, {});
    on::spectral<double>(root, nullptr, each, rank.data(), {});
    on::weight_backward<double>(nullptr, each, nullptr, each, nullptr, nullptr, {}, {});
  }
  Activations<double> x = activations(0);
  x.data = nullptr;
  x.batch = 0;
  on::affine<double>(matrices(0), nullptr, nullptr, x, x);
}
#endif

TEST_F(Arguments, SharedMemoryIsNamed) {
  const auto a = matrices(0), b = matrices(1), c = matrices(2);
  const auto inside = contiguous(memory.data() + 7, 2, 3);
  const std::string got = ", got memory that they share";
  for (const auto& other : {a, inside})
    EXPECT_TRUE(refuses({"keel::eigh: expected vectors apart from matrices" + got},
                        [&] { on::eigh<double>(a, values, other, EighOrder::ascending); }));
  EXPECT_TRUE(refuses({"keel::svd: expected left apart from matrices" + got}, [&] {
    on::svd<double>(rectangles(0), values, rectangles(0), rectangles(1));
  }));
  EXPECT_TRUE(
      refuses({"keel::weight_backward: expected matrix apart from layer_matrix" + got},
              [&] { on::weight_backward<double>(nullptr, a, nullptr, b, values, nullptr, c, a); }));
  EXPECT_TRUE(refuses(
      {"keel::running_average: expected running.matrix apart from layer_matrix" + got}, [&] {
        std::int64_t batches = 0;
        on::running_average<double>(0.1, 0, values, a, b, {values + 6, b, nullptr, &batches});
      }));
  auto x = activations(0), y = activations(1), shifted = x;
  shifted.data += 5;
  for (const auto& output : {x, shifted})
    EXPECT_TRUE(refuses({"keel::affine: expected output apart from input" + got},
                        [&] { on::affine<double>(a, nullptr, nullptr, x, output); }));
  EXPECT_TRUE(refuses({"keel::affine_backward: expected dL_dinput apart from input" + got},
                      [&] { on::affine_backward<double>(a, x, b, nullptr, y, values, y); }));
#ifdef KEEL_COMPUTES_HERE  // the output is asked for last
  const WhitenState<double> state{values, a, b, {values + 6, c, rank.data()}};
  EXPECT_TRUE(refuses({"keel::whiten: expected output apart from input" + got},
                      [&] { on::whiten<double>(Zca{}, x, nullptr, nullptr, state, x); }));
#endif
}

#ifdef KEEL_COMPUTES_HERE
// The left and the right half of the same rows, and a last row that the next array's first one touches.
TEST_F(Arguments, InterleavedViewsAreValid) {
  std::iota(memory.begin(), memory.end(), 1.0);
  const Matrices<double> left{memory.data(), 2, 3, 6, 18}, right{memory.data() + 3, 2, 3, 6, 18};
  on::eigh<double>(left, values, right, EighOrder::descending);
  const auto packed = matrices(4), next = matrices(5);
  for (std::int64_t b = 0; b < 2; ++b)
    for (std::int64_t i = 0; i < 9; ++i) packed[b][i] = left[b][i / 3 * 6 + i % 3];
  on::eigh<double>(packed, values + 6, next, EighOrder::descending);
  for (std::int64_t i = 0; i < 6; ++i) EXPECT_EQ(values[i], values[i + 6]) << i;
}
#endif

TEST_F(Arguments, WhatWouldBeIgnoredIsNamed) {
  const auto a = matrices(0), b = matrices(1);
  const auto x = activations(0), y = activations(1), z = activations(2);
  EXPECT_EQ(error_of([&] { on::affine<double>(a, nullptr, nullptr, x, y.gated(z.data)); }),
            "keel::affine: expected output without a gate, got one with it");
  EXPECT_EQ(
      error_of([&] { on::affine_backward<double>(a, x.with_relu(), {}, nullptr, {}, nullptr, y); }),
      "keel::affine_backward: expected dL_doutput without a residual or ReLU, got one with ReLU");
  EXPECT_EQ(
      error_of([&] { on::cross_moments<double>(x.plus(z.data), y, nullptr, values, b); }),
      "keel::cross_moments: expected left without a residual or ReLU, got one with a residual");
  const WhitenState<double> state{values, a, b, {values + 6, matrices(2), rank.data()}};
  EXPECT_EQ(
      error_of([&] { on::whiten<double>(Zca{}, x.gated(z.data), nullptr, nullptr, state, y); }),
      "keel::whiten: expected input without a gate, residual or ReLU, got one with a gate");
}

}  // namespace
}  // namespace keel::testing
