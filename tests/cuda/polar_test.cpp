// The contract in keel/polar.h, on the GPU. Needs a GPU.

#include "keel/polar.h"

#include <gtest/gtest.h>

#include "keel/error.h"
#include "on_device.h"
#include "support/polar.h"

namespace keel::testing {
namespace {

template <typename T>
struct PolarProblem {
  std::int64_t batch, m, n;
  PolarKind kind;
  OnDevice<T> matrices, gradients;
  OnDevice<T> results{std::vector<T>(std::size_t(batch * m * n), T(77))};
  OnDevice<T> slopes{std::vector<T>(std::size_t(batch * m * n), T(77))};
  OnDevice<T> margins{std::vector<T>(std::size_t(batch), T(77))};
  std::int64_t k = std::min(m, n);
  OnDevice<T> values{std::vector<T>(std::size_t(batch * k), T(77))};
  OnDevice<T> rights{std::vector<T>(std::size_t(batch * k * n), T(77))};
  OnDevice<T> again{std::vector<T>(std::size_t(batch * m * n), T(77))};

  static std::vector<T> joined(const std::vector<Rectangle<T>>& all) {
    std::vector<T> data;
    for (const auto& each : all) data.insert(data.end(), each.data.begin(), each.data.end());
    return data;
  }
  PolarProblem(const std::vector<Rectangle<T>>& all, const std::vector<Rectangle<T>>& along,
               PolarKind wanted)
      : batch(std::int64_t(all.size())),
        m(all[0].rows),
        n(all[0].columns),
        kind(wanted),
        matrices(joined(all)),
        gradients(joined(along)) {}
  void queue(const Stream& stream = {}) {
    const auto a = contiguous<const T>(matrices.data(), batch, m, n);
    const auto g = contiguous<const T>(gradients.data(), batch, m, n);
    cuda::polar<T>(a, kind, contiguous(results.data(), batch, m, n), margins.data(),
                   {values.data(), contiguous(rights.data(), batch, k, n)}, stream);
    cuda::polar_backward<T>(a, g, kind, contiguous(slopes.data(), batch, m, n), stream);
    cuda::polar_backward_from_factors<T>(
        contiguous<const T>(results.data(), batch, m, n),
        {values.data(), contiguous<const T>(rights.data(), batch, k, n)}, g,
        contiguous(again.data(), batch, m, n), stream);
  }
  std::vector<PolarAnswer<T>> answers() {
    const std::vector<T> r = results.back(), g = slopes.back(), d = margins.back(),
                         s = values.back(), v = rights.back(), f = again.back();
    std::vector<PolarAnswer<T>> all;
    for (std::int64_t b = 0; b < batch; ++b) {
      all.emplace_back(m, n);
      std::copy_n(r.begin() + b * m * n, m * n, all.back().result.data.begin());
      std::copy_n(g.begin() + b * m * n, m * n, all.back().gradient.data.begin());
      std::copy_n(f.begin() + b * m * n, m * n, all.back().from_factors.data.begin());
      std::copy_n(s.begin() + b * k, k, all.back().values.begin());
      std::copy_n(v.begin() + b * k * n, k * n, all.back().right.data.begin());
      all.back().margin = d[std::size_t(b)];
    }
    return all;
  }
};

template <typename T>
std::vector<PolarAnswer<T>> polar_on_device(const std::vector<Rectangle<T>>& all,
                                            const std::vector<Rectangle<T>>& along,
                                            PolarKind kind) {
  PolarProblem<T> problem(all, along, kind);
  problem.queue();
  return problem.answers();
}

template <typename T>
class CudaPolar : public ::testing::Test {};
using CudaPolarTypes = ::testing::Types<float, double>;
TYPED_TEST_SUITE(CudaPolar, CudaPolarTypes);

TYPED_TEST(CudaPolar, EveryShape) {
  using T = TypeParam;
  for (std::int64_t m = 1; m <= 4; ++m)
    for (std::int64_t n = 1; n <= 4; ++n)
      for (const PolarKind kind : kinds_for(m, n)) {
        SCOPED_TRACE(std::to_string(m) + " x " + std::to_string(n));
        std::vector<Rectangle<T>> zoo, all, along;
        for (const auto& each : rectangle_zoo(m, n)) zoo.push_back(as<T>(each.matrix));
        const auto factors = polar_on_device(zoo, zoo, kind);
        for (std::size_t b = 0; b < zoo.size(); ++b) {
          SCOPED_TRACE(rectangle_zoo(m, n)[b].name);
          expect_polar_factor(zoo[b], kind, factors[b].result);
        }
        for (std::uint64_t b = 0; b < 200; ++b) {
          all.push_back(as<T>(random_rectangle(m, n, b)));
          along.push_back(as<T>(random_rectangle(m, n, 1000 + b)));
        }
        const auto answers = polar_on_device(all, along, kind);
        for (std::size_t b = 0; b < all.size(); ++b)
          expect_as_reference(all[b], along[b], kind, answers[b]);
      }
}

TYPED_TEST(CudaPolar, MatesAndPlaceDoNotMatterNorTheGraph) {
  using T = TypeParam;
  const Rectangle<T> one = as<T>(random_rectangle(3, 3, 3)), g = as<T>(random_rectangle(3, 3, 4));
  std::vector<Rectangle<T>> wild, along(301, g);
  for (std::uint64_t b = 0; b < 301; ++b) wild.push_back(as<T>(random_rectangle(3, 3, 40 + b)));
  wild[7] = wild[200] = wild[300] = one;
  wild[8](1, 1) = wild[199](2, 0) = std::numeric_limits<T>::quiet_NaN();
  along[201](0, 0) = std::numeric_limits<T>::infinity();
  const auto alone = polar_on_device<T>({one}, {g}, PolarKind::rotation);
  PolarProblem<T> problem(wild, along, PolarKind::rotation);
  run_as_graph([&](const Stream& stream) { problem.queue(stream); });
  const auto answers = problem.answers();
  for (const std::size_t place : {7, 200, 300}) {
    EXPECT_TRUE(bitwise_equal(answers[place].result.data, alone[0].result.data));
    EXPECT_TRUE(bitwise_equal(answers[place].gradient.data, alone[0].gradient.data));
    EXPECT_EQ(answers[place].margin, alone[0].margin);
  }
  for (std::size_t k = 0; k < 9; ++k) {
    EXPECT_TRUE(std::isnan(answers[8].result.data[k]) && std::isnan(answers[199].gradient.data[k]));
    EXPECT_TRUE(std::isnan(answers[201].gradient.data[k]));
    EXPECT_FALSE(std::isnan(answers[201].result.data[k]));
  }
}

TEST(CudaPolar, ErrorsAndEmptyShapes) {
  const auto none = [](std::int64_t batch, std::int64_t m, std::int64_t n) {
    return contiguous<float>(nullptr, batch, m, n);
  };
  EXPECT_THROW(cuda::polar<float>(none(1, 5, 3), PolarKind::orthogonal, none(1, 5, 3)), Error);
  EXPECT_THROW(cuda::polar<float>(none(1, 4, 3), PolarKind::rotation, none(1, 4, 3)), Error);
  cuda::polar<float>(none(0, 3, 3), PolarKind::rotation, none(0, 3, 3));
  OnDevice<float> margin({0.f, 0.f});
  cuda::polar<float>(none(2, 0, 3), PolarKind::orthogonal, none(2, 0, 3), margin.data());
  for (const float each : margin.back()) EXPECT_EQ(each, std::numeric_limits<float>::infinity());
}

}  // namespace
}  // namespace keel::testing
