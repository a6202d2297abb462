// The contract in keel/eigh.h, on the GPU. Needs a GPU.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "cuda/launch/card.h"
#include "cuda/plan.h"
#include "cuda_backend.h"
#include "eigenvalue_noise.h"
#include "support/eigh_contract.h"

namespace keel::testing {
namespace {

template <typename T>
using Problem = EighProblem<Cuda, T>;

template <typename T>
Solved<T> solve_on_device(const Batch<T>& m) {
  return solve_by<Cuda>(m);
}

template <typename T>
cuda::EighPath path_of(std::int64_t n) {
  return cuda::eigh_path<T>(n, 1, cuda::this_card());
}

/// Under compute-sanitizer the first of these sizes on each path, otherwise all. Under racecheck none on the path `wide`:
/// its blocks wait for each other, which takes more than four minutes there for one matrix.
template <typename T>
std::vector<std::int64_t> one_of_each_path(std::vector<std::int64_t> all) {
  std::set<cuda::EighPath> seen;
  std::erase_if(all, [&](std::int64_t n) {
    if (is_under_racecheck() && path_of<T>(n) == cuda::EighPath::wide) return true;
    return is_too_large(n, 64) && !seen.insert(path_of<T>(n)).second;
  });
  return all;
}

/// Sizes up to 513 on both sides of every limit between this card's kernels, and odd sizes between. (CanBeCapturedInAGraph
/// and TheLargestWideSize have the larger ones.)
template <typename T>
std::vector<std::int64_t> sizes() {
  const auto size_of_kernel = [](std::int64_t n) {
    if (path_of<T>(n) != cuda::EighPath::wide) return cuda::block_size(n);
    const std::int64_t stride = cuda::wide_shape<T>(n, 1, cuda::this_card()).stride;
    return cuda::by_wide_size(stride, [](auto size) { return std::int64_t(size); });
  };
  std::set<std::int64_t> all{1, 2, 3, 7, 15, 48, 66, 97, 99, 130, 161};
  if (!kIsComplex<T>) all.insert({300, 511});
  for (std::int64_t n = 1; n <= (kIsComplex<T> ? 200 : 512); ++n)
    if (path_of<T>(n) != path_of<T>(n + 1) || size_of_kernel(n) != size_of_kernel(n + 1) ||
        n + 1 == cuda::kFastAlone)
      all.insert({n, n + 1});
  return {all.begin(), all.end()};
}

}  // namespace

template <>
struct EighSizes<Cuda> {
  template <typename T>
  static std::vector<SizeAndBatch> of_batches() {
    std::vector<SizeAndBatch> all;
    for (const std::int64_t n : sizes<T>())
      for (const std::int64_t batch :
           {1, 2, 3, 17, 33, 1500, int(cuda::kLeastTinyBatch) - 1, int(cuda::kLeastTinyBatch)})
        if (batch <= (n > 128 ? 3 : n > 16 ? 100 : n > cuda::kLargestTiny + 1 ? 2000 : 9000))
          all.emplace_back(n, batch);
    return all;
  }
  template <typename T>
  static std::vector<std::int64_t> of_zoos() {
    if (kIsComplex<T>) return {1, 2, 3, 8, 31, 32, 33, 64, 65, 130};
    return {1, 2, 4, 9, 32, 50, 64, 96, 130, 256, 300, 520};
  }
  template <typename T>
  static std::vector<SizeAndBatch> of_few() {
    std::vector<SizeAndBatch> all;
    for (const std::int64_t n : sizes<T>()) all.emplace_back(n, 3);
    return all;
  }
  template <typename T>
  static std::vector<SizeAndBatch> of_strided() {
    std::vector<SizeAndBatch> all;
    for (const std::int64_t n : one_of_each_path<T>({3, 24, 70, 129, 200, 259, 300}))
      all.emplace_back(n, 3);
    return all;
  }
  template <typename T>
  static std::vector<SizeAndBatch> of_mates() {
    std::vector<SizeAndBatch> all;
    for (const std::int64_t n :
         one_of_each_path<T>({1, 3, 4, 7, 8, 16, 31, 33, 64, 65, 100, 129, 260, 520}))
      all.emplace_back(n, n < 64 ? 37 : 5);
    return all;
  }
  template <typename T>
  static std::vector<SizeAndBatch> of_lonely() {
    std::vector<SizeAndBatch> all;
    for (const std::int64_t n : {4, 7, 16, 33, 64, 100, 150, 256, 300, 700})
      if (path_of<T>(n) != cuda::EighPath::cusolver)  // whose answers are so to rounding
        all.emplace_back(n, 1);
    return all;
  }
};

namespace {

using EveryEighOnCuda = OnFloats<Cuda>;
INSTANTIATE_TYPED_TEST_SUITE_P(OnCuda, EighContract, EveryEighOnCuda);
using EveryHermitianOnCuda = OnComplex<Cuda>;
INSTANTIATE_TYPED_TEST_SUITE_P(OnCudaComplex, EighContract, EveryHermitianOnCuda);

template <typename T>
class CudaEigh : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(CudaEigh, Types);

/// Alone they may come from another solver, whose errors are of the same size.
TYPED_TEST(CudaEigh, ValuesAloneAreThoseOfEigh) {
  using T = TypeParam;
  const double epsilon = std::numeric_limits<T>::epsilon();
  for (const std::int64_t n : {1, 5, 64, 200, int(cuda::kLeastValuesAlone)}) {
    if (is_too_large(n, 300)) continue;
    Batch<T> m(2, n);
    const auto one = with_spectrum(spectrum(n, [](double i) { return std::pow(0.9, i) - 0.1; }), 1);
    for (const std::int64_t b : {0, 1}) m.set(b, one.matrix(0));
    m(1, 0, 0) = std::numeric_limits<T>::quiet_NaN();
    const Solved<T> both = solve_on_device(m);
    BatchIn<OnDevice, T> given(m);
    OnDevice<T> values(std::vector<T>(std::size_t(2 * n)));
    OnDevice<EighStatus> status(std::vector<EighStatus>(2));
    cuda::eigvalsh<T>(given.view(), values.data(), EighOrder::descending, status.data());
    const auto alone = values.back();
    EXPECT_EQ(status.back(), (std::vector{EighStatus::converged, EighStatus::not_finite}));
    for (std::int64_t i = 0; i < n; ++i) {
      // Each is within 4 n epsilon of the largest magnitude, which is below 1.
      const double apart = n < cuda::kLeastValuesAlone ? 0 : 8 * double(n) * epsilon;
      EXPECT_NEAR(alone[std::size_t(i)], both.values[std::size_t(i)], apart) << n << " " << i;
      EXPECT_TRUE(std::isnan(alone[std::size_t(n + i)])) << n << " " << i;
    }
  }
}

TYPED_TEST(CudaEigh, ZerosComeOutWithinTheNoise) {
  using T = TypeParam;
  for (const std::int64_t n : {2, 3, 8, 33, 64, 128, 129, 257, 512, 1025})
    for (const std::int64_t rank : {std::int64_t(1), (n + 1) / 2, n - 1}) {
      const Batch<double> alike(1, n, 1.0);  // of rank one; all roundings have the same sign
      const Batch<double> projector =
          with_spectrum(spectrum(n, [&](double i) { return i < double(rank) ? 1.0 : 0.0; }), 1);
      for (const Batch<double>& m : {wishart(n, rank, 1), projector, alike})
        for (const std::int64_t batch : {1, 3}) {
          Batch<T> copies(batch, n);
          for (std::int64_t b = 0; b < batch; ++b) copies.set(b, m.matrix(0));
          const Solved<T> s = solve_on_device(copies);
          for (std::int64_t i = rank; i < n; ++i)
            EXPECT_LE(std::abs(s.values[std::size_t(i)]), eigenvalue_noise<T>(n) * s.values[0])
                << "n = " << n << ", rank = " << rank << ", batch = " << batch;
        }
    }
}

TYPED_TEST(CudaEigh, TheZoosValuesAreTheCpus) {
  for (const std::int64_t n : EighSizes<Cuda>::of_zoos<TypeParam>()) {
    const auto zoo = spectrum_zoo<TypeParam>(n);
    Batch<TypeParam> m(std::int64_t(zoo.size()), n);
    for (std::size_t b = 0; b < zoo.size(); ++b) m.set(std::int64_t(b), zoo[b].matrix.matrix(0));
    const Solved<TypeParam> s = solve_on_device(m), host = solve(m);
    for (std::size_t b = 0; b < zoo.size(); ++b) {
      SCOPED_TRACE(zoo[b].name + ", n = " + std::to_string(n));
      const TypeParam size = std::abs(host.values[b * std::size_t(n)]);
      const TypeParam other = std::abs(host.values[(b + 1) * std::size_t(n) - 1]);
      const double bound = rounding<TypeParam>(n, std::max(size, other)) +
                           double(std::numeric_limits<TypeParam>::denorm_min()) * 8;
      for (std::size_t i = b * std::size_t(n); i < (b + 1) * std::size_t(n); ++i)
        EXPECT_NEAR(double(s.values[i]), double(host.values[i]), bound);
    }
  }
}

TYPED_TEST(CudaEigh, CanBeCapturedInAGraph) {
  for (const std::int64_t n :
       one_of_each_path<TypeParam>({24, 100, 129, 200, 257, 300, 600, 1024})) {
    // cuSOLVER does not promise it.
    if (n > 256 && path_of<TypeParam>(n) == cuda::EighPath::cusolver) continue;
    const Batch<TypeParam> m = as<TypeParam>(random_symmetric(2, n, 11));
    // First, because cuSOLVER must make its handle before the capture.
    const auto eager = solve_on_device(m).vectors.data;
    Problem<TypeParam> problem(m);
    run_as_graph([&](const Stream& stream) { problem.queue(stream); });
    EXPECT_TRUE(bitwise_equal(problem.solved().vectors.data, eager));
  }
}

TYPED_TEST(CudaEigh, SmallPartsKeepTheirOwnAccuracy) {
  using T = TypeParam;
  const double least = std::numeric_limits<T>::min();
  for (const std::int64_t n : {2, 3, 4, 5, 8, 11, 16, 24, 32, 50, 64}) {
    if (path_of<T>(2 * n) != cuda::EighPath::block) continue;
    for (const double factor : {1.0, 1e-8, 1e-17, least * 1e6}) {
      SCOPED_TRACE(::testing::Message() << "n = " << n << ", factor = " << factor);
      const Batch<T> block = as<T>(with_spectrum(spectrum(n, [](double i) { return 1 + i; }), 3));
      const Batch<T> m = as<T>(two_sizes(as<double>(block), factor));
      const Solved<double> alone = solve_by_reference(as<double>(block));
      const Solved<T> s = solve_on_device(m);
      EXPECT_EQ(s.status[0], EighStatus::converged);
      for (std::int64_t i = 0; i < 2 * n; ++i) {
        // Equal values of the two parts alternate.
        const std::int64_t at = factor == 1 ? i / 2 : i % n;
        const double part = i < n ? 1 : factor;
        EXPECT_NEAR(s.values[std::size_t(i)], part * alone.values[std::size_t(at)],
                    rounding<T>(4, part * alone.values[0]));
        std::int64_t large = 0, small = 0;  // a vector lives in its part alone
        for (std::int64_t r = 0; r < n; ++r) {
          large += s.vectors(0, 2 * r, i) != 0;
          small += s.vectors(0, 2 * r + 1, i) != 0;
        }
        EXPECT_EQ(std::min(large, small), 0);
        if (factor != 1) {
          EXPECT_EQ(i < n ? small : large, 0);
        }
      }
      const EigenQuality quality =
          eigen_quality(2 * n, m.matrix(0), s.values.data(), s.vectors.matrix(0));
      EXPECT_LE(quality.orthogonality, rounding<T>(2 * n, 1));
    }
  }
}

TYPED_TEST(CudaEigh, AsAccurateAsOnTheCpu) {
  for (const std::int64_t n : {2, 3, 4, 8, 16, 32, 64, 100, 128, 200, 256, 300, 512}) {
    Batch<TypeParam> m(4, n);
    m.set(0, as<TypeParam>(random_symmetric(1, n, 21)).matrix(0));
    m.set(1, as<TypeParam>(wishart(n, 2 * n, 22)).matrix(0));
    m.set(2, as<TypeParam>(wilkinson(n)).matrix(0));
    m.set(3, as<TypeParam>(block_diagonal(n, 23)).matrix(0));
    const Solved<TypeParam> s = solve_on_device(m), host = solve(m);
    for (std::int64_t b = 0; b < 4; ++b) {
      SCOPED_TRACE("n = " + std::to_string(n) + ", matrix " + std::to_string(b));
      const auto quality = [&](const Solved<TypeParam>& of) {
        return eigen_quality(n, m.matrix(b), of.values.data() + b * n, of.vectors.matrix(b));
      };
      const EigenQuality own = quality(s), twin = quality(host);
      EXPECT_LE(own.residual, eigh_bound<TypeParam>(twin.residual));
      EXPECT_LE(own.orthogonality, eigh_bound<TypeParam>(twin.orthogonality));
    }
  }
}

/// Two matrices repeated many times. Each must give the same result as in a batch of two.
template <typename T>
void expect_copies_alike(std::int64_t n, std::int64_t batch) {
  SCOPED_TRACE("n = " + std::to_string(n) + ", batch = " + std::to_string(batch));
  const Batch<T> few = as<T>(random_symmetric(2, n, 13));
  Batch<T> many(batch, n);
  for (std::int64_t b = 0; b < batch; ++b) many.set(b, few.matrix(b % 2));
  const Solved<T> a = solve_on_device(few), b = solve_on_device(many);
  for (std::int64_t k = 0; k < batch; ++k) {
    ASSERT_TRUE(bitwise_equal(b.vectors.matrix(k), a.vectors.matrix(k % 2), n * n)) << k;
    ASSERT_TRUE(bitwise_equal(b.values.data() + k * n, a.values.data() + k % 2 * n, n)) << k;
    ASSERT_EQ(b.status[std::size_t(k)], EighStatus::converged);
  }
}

// More matrices than run at once.
TYPED_TEST(CudaEigh, LargeBatchesOfMiddleSizes) {
  const std::int64_t n = cuda::kLargestMiddle<TypeParam> / 2 + 2;
  if (path_of<TypeParam>(n) != cuda::EighPath::middle)
    GTEST_SKIP() << "cuSOLVER's on a card of this size";
  expect_copies_alike<TypeParam>(n, 600);
}

// More matrices than have their own blocks, with few blocks each and with many.
TYPED_TEST(CudaEigh, LargeBatchesOfWideSizes) {
  const std::int64_t n = cuda::kLargestMiddle<TypeParam> + 4;
  if (path_of<TypeParam>(n) != cuda::EighPath::wide)
    GTEST_SKIP() << "cuSOLVER's on a card of this size";
  for (const std::int64_t batch : {3, 17, 70, 300}) expect_copies_alike<TypeParam>(n, batch);
  for (const std::int64_t batch : {4, 11}) expect_copies_alike<TypeParam>(1000, batch);
}

/// Checks only a few vectors of the first matrix, since all would take minutes.
template <typename T>
void expect_some_vectors(const Batch<T>& m, const Solved<T>& s) {
  const std::int64_t n = m.n;
  const double size =
      std::max(std::abs(double(s.values.front())), std::abs(double(s.values[std::size_t(n) - 1])));
  for (const std::int64_t j : {std::int64_t(0), n / 3, n / 2, n - 1}) {
    SCOPED_TRACE(j);
    std::vector<double> vector(static_cast<std::size_t>(n)), along(vector.size());
    for (std::int64_t r = 0; r < n; ++r) vector[std::size_t(r)] = double(s.vectors(0, r, j));
    double residual = 0, worst = 0;
    for (std::int64_t r = 0; r < n; ++r) {
      double image = 0;
      for (std::int64_t c = 0; c < n; ++c) {
        image += double(m(0, std::max(r, c), std::min(r, c))) * vector[std::size_t(c)];
        along[std::size_t(c)] += double(s.vectors(0, r, c)) * vector[std::size_t(r)];
      }
      residual += std::pow(image - double(s.values[std::size_t(j)]) * vector[std::size_t(r)], 2);
    }
    along[std::size_t(j)] -= 1;
    for (const double x : along) worst = larger(worst, std::abs(x));
    EXPECT_LE(std::sqrt(residual), rounding<T>(n, size));
    EXPECT_LE(worst, rounding<T>(n, 1));
  }
}

// In float64 some of its rows are in global memory.
TYPED_TEST(CudaEigh, TheLargestWideSize) {
  using T = TypeParam;
  const std::int64_t n = cuda::kLargestWide;
  if (path_of<T>(n) != cuda::EighPath::wide) GTEST_SKIP() << "cuSOLVER's on a card of this size";
  const Batch<T> m = as<T>(random_symmetric(1, n, 16));
  expect_some_vectors(m, solve_on_device(m));
}

// A matrix alone, two at once, and all ones, whose vectors cuSOLVER does not always return orthonormal.
TYPED_TEST(CudaEigh, BeyondTheLargestWideSize) {
  using T = TypeParam;
  const std::int64_t n = cuda::kLargestWide + 38;
  for (const std::int64_t batch : {1, 2}) {
    SCOPED_TRACE(batch);
    Batch<T> m = as<T>(random_symmetric(batch, n, 17));
    expect_some_vectors(m, solve_on_device(m));
    std::fill(m.data.begin(), m.data.end(), T(1));
    expect_some_vectors(m, solve_on_device(m));
  }
}

// The blocks of a call wait for each other. Two calls at once must not wait for each other's blocks.
TYPED_TEST(CudaEigh, TwoStreamsAtOnce) {
  const std::int64_t n = 600;
  const Batch<TypeParam> m = as<TypeParam>(random_symmetric(3, n, 14));
  const Solved<TypeParam> alone = solve_on_device(m);
  Problem<TypeParam> first(m), second(m);
  OwnStream one, other;
  for (int round = 0; round < 4; ++round) {
    first.queue(one.stream());
    second.queue(other.stream());
  }
  one.wait();
  other.wait();
  EXPECT_TRUE(bitwise_equal(first.solved().vectors.data, alone.vectors.data));
  EXPECT_TRUE(bitwise_equal(second.solved().vectors.data, alone.vectors.data));
}

template <typename T>
class CudaHermitian : public ::testing::Test {};
using ComplexTypes = ::testing::Types<std::complex<float>, std::complex<double>>;
TYPED_TEST_SUITE(CudaHermitian, ComplexTypes);

/// On both sides of the limits between kernels, and beyond what a block holds.
const std::int64_t kHermitianSizes[] = {1,  2,  3,  8,   9,   16,  17,  32, 33,
                                        50, 64, 65, 100, 128, 129, 200, 300};

TYPED_TEST(CudaHermitian, AsAccurateAsOnTheCpuWithTheSameValues) {
  using T = RealOf<TypeParam>;
  for (const std::int64_t n : kHermitianSizes) {
    if (is_too_large(n, 64)) continue;
    Batch<TypeParam> m(3, n);
    m.set(0, random_hermitian<TypeParam>(1, n, 21).matrix(0));
    m.set(1, made_complex<TypeParam>(wishart(n, 2 * n, 22), false, 5).matrix(0));
    m.set(2, made_complex<TypeParam>(wilkinson(n), true, 6).matrix(0));
    const Solved<TypeParam> s = solve_on_device(m), host = solve(m);
    for (std::int64_t b = 0; b < 3; ++b) {
      SCOPED_TRACE("n = " + std::to_string(n) + ", matrix " + std::to_string(b));
      const auto quality = [&](const Solved<TypeParam>& of) {
        return eigen_quality(n, m.matrix(b), of.values.data() + b * n, of.vectors.matrix(b));
      };
      const EigenQuality own = quality(s), twin = quality(host);
      EXPECT_LE(own.residual, eigh_bound<T>(twin.residual));
      EXPECT_LE(own.orthogonality, eigh_bound<T>(twin.orthogonality));
      const T size = std::max(std::abs(host.values[std::size_t(b * n)]),
                              std::abs(host.values[std::size_t((b + 1) * n - 1)]));
      for (std::size_t i = std::size_t(b * n); i < std::size_t((b + 1) * n); ++i)
        EXPECT_NEAR(s.values[i], host.values[i], rounding<T>(n, size));
    }
  }
}

TYPED_TEST(CudaHermitian, ValuesAlone) {
  using T = RealOf<TypeParam>;
  for (const std::int64_t n : {1, 5, 64, 65, 128, 129, 200}) {
    Batch<TypeParam> m = random_hermitian<TypeParam>(2, n, 23);
    m(1, 0, 0) = not_a_number<TypeParam>();
    const Solved<TypeParam> both = solve_on_device(m);
    BatchIn<OnDevice, TypeParam> given(m);
    OnDevice<T> values(std::vector<T>(std::size_t(2 * n)));
    OnDevice<EighStatus> status(std::vector<EighStatus>(2));
    cuda::eigvalsh<TypeParam>(given.view(), values.data(), EighOrder::descending, status.data());
    const auto alone = values.back();
    EXPECT_EQ(status.back(), (std::vector{EighStatus::converged, EighStatus::not_finite}));
    const T size = std::max(std::abs(both.values[0]), std::abs(both.values[std::size_t(n - 1)]));
    for (std::int64_t i = 0; i < n; ++i) {
      EXPECT_NEAR(alone[std::size_t(i)], both.values[std::size_t(i)],
                  path_of<TypeParam>(n) == cuda::EighPath::block ? 0 : rounding<T>(n, size));
      EXPECT_TRUE(std::isnan(alone[std::size_t(n + i)])) << n << " " << i;
    }
  }
}

TYPED_TEST(CudaHermitian, CanBeCapturedInAGraph) {
  for (const std::int64_t n : {5, 24, 64, 100, 128, 200}) {
    const Batch<TypeParam> m = random_hermitian<TypeParam>(2, n, 11);
    const auto eager = solve_on_device(m).vectors.data;
    Problem<TypeParam> problem(m);
    run_as_graph([&](const Stream& stream) { problem.queue(stream); });
    EXPECT_TRUE(bitwise_equal(problem.solved().vectors.data, eager));
  }
}

TYPED_TEST(CudaHermitian, SmallPartsKeepTheirOwnAccuracy) {
  using T = RealOf<TypeParam>;
  for (const std::int64_t n : {2, 3, 4, 8, 16, 32, 64}) {
    if (path_of<TypeParam>(2 * n) != cuda::EighPath::block) continue;
    for (const double factor : {1e-8, 1e-17, double(std::numeric_limits<T>::min()) * 1e6}) {
      SCOPED_TRACE(::testing::Message() << "n = " << n << ", factor = " << factor);
      const auto block = with_spectrum(spectrum(n, [](double i) { return 1 + i; }), 3);
      const Solved<TypeParam> s =
          solve_on_device(made_complex<TypeParam>(two_sizes(block, factor), true, 7));
      for (std::int64_t i = 0; i < 2 * n; ++i) {
        const double part = i < n ? 1 : factor, expected = part * double(n - i % n);
        EXPECT_NEAR(s.values[std::size_t(i)], expected, rounding<T>(4, part * double(n)));
        for (std::int64_t r = 0; r < 2 * n; ++r) {
          if (r % 2 != (i < n ? 0 : 1)) EXPECT_EQ(s.vectors(0, r, i), TypeParam(0));
        }
      }
    }
  }
}

TYPED_TEST(CudaHermitian, SteepMatrices) {
  for (const std::int64_t n : {8, 33, 64, 128, 150})
    for (const double step : {0.05, 0.2, 0.8, 4.0}) {
      SCOPED_TRACE(::testing::Message() << "n = " << n << ", step = " << step);
      if (is_too_large(n, 64)) continue;
      Batch<TypeParam> m = random_hermitian<TypeParam>(2, n, 19);
      for (std::int64_t b = 0; b < m.batch; ++b)
        for (std::int64_t i = 0; i < n; ++i)
          for (std::int64_t j = 0; j < n; ++j)
            m(b, i, j) *= RealOf<TypeParam>(std::pow(10.0, -step * double(std::max(i, j))));
      const Solved<TypeParam> s = solve_on_device(m);
      expect_right(m, s);
      expect_ordered_and_signed(m, s);
    }
}

TYPED_TEST(CudaHermitian, LargeBatches) {
  for (const auto& [n, batch] :
       {std::pair{8, 4099}, {16, 3000}, {32, 1000}, {64, 600}, {100, 300}}) {
    if (path_of<TypeParam>(n) != cuda::EighPath::block) continue;
    const Batch<TypeParam> few = random_hermitian<TypeParam>(2, n, 13);
    Batch<TypeParam> many(batch, n);
    for (std::int64_t b = 0; b < batch; ++b) many.set(b, few.matrix(b % 2));
    const Solved<TypeParam> a = solve_on_device(few), b = solve_on_device(many);
    for (std::int64_t k = 0; k < batch; ++k) {
      ASSERT_TRUE(bitwise_equal(b.vectors.matrix(k), a.vectors.matrix(k % 2), n * n)) << k;
      ASSERT_TRUE(bitwise_equal(b.values.data() + k * n, a.values.data() + k % 2 * n, n)) << k;
      ASSERT_EQ(b.status[std::size_t(k)], EighStatus::converged);
    }
  }
}

}  // namespace
}  // namespace keel::testing
