// Which CUDA kernel runs, without a GPU.

#include "cuda/plan.h"

#include <gtest/gtest.h>

#include <complex>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

namespace keel::cuda {
namespace {

struct NamedCard {
  const char* name;
  Card card;
};
const NamedCard kCards[] = {{"H200", {132, 227 << 10, true}},
                            {"A100", {108, 163 << 10, false}},
                            {"RTX 4090", {128, 99 << 10, false}}};
const Card &kH200 = kCards[0].card, &kA100 = kCards[1].card, &kRtx4090 = kCards[2].card;

TEST(CudaPlan, EighOnBothSidesOfEveryLimit) {
  const auto of = [](std::int64_t n, std::int64_t batch, const Card& card) {
    return eigh_path<float>(n, batch, card);
  };
  const auto in_double = [](std::int64_t n, const Card& card) {
    return eigh_path<double>(n, 1, card);
  };
  EXPECT_EQ(of(4, 8191, kH200), EighPath::block);
  EXPECT_EQ(of(4, 8192, kH200), EighPath::tiny);
  EXPECT_EQ(of(5, 8192, kH200), EighPath::block);
  EXPECT_EQ(of(128, 1, kH200), EighPath::block);
  EXPECT_EQ(of(129, 1, kH200), EighPath::middle);
  EXPECT_EQ(of(256, 1, kH200), EighPath::middle);
  EXPECT_EQ(of(257, 1, kH200), EighPath::wide);
  EXPECT_EQ(of(2048, 1, kH200), EighPath::wide);
  EXPECT_EQ(of(2049, 1, kH200), EighPath::cusolver);
  EXPECT_EQ(in_double(64, kH200), EighPath::block);
  EXPECT_EQ(in_double(65, kH200), EighPath::middle);
  EXPECT_EQ(in_double(128, kH200), EighPath::middle);
  EXPECT_EQ(in_double(129, kH200), EighPath::wide);
  EXPECT_EQ(in_double(64, kA100), EighPath::block);
  EXPECT_EQ(in_double(128, kA100), EighPath::middle);
  EXPECT_EQ(of(64, 1, kA100), EighPath::block);
  EXPECT_EQ(of(65, 1, kA100), EighPath::cusolver);
  EXPECT_EQ(in_double(32, kRtx4090), EighPath::block);
  EXPECT_EQ(in_double(33, kRtx4090), EighPath::cusolver);
}

TEST(CudaPlan, ComplexEighOnBothSidesOfEveryLimit) {
  const auto of = [](std::int64_t n, const Card& card) {
    return eigh_path<std::complex<float>>(n, 1, card);
  };
  const auto in_double = [](std::int64_t n, const Card& card) {
    return eigh_path<std::complex<double>>(n, 1, card);
  };
  for (const NamedCard& on : kCards) {
    EXPECT_EQ(of(1, on.card), EighPath::block);
    EXPECT_EQ(of(64, on.card), EighPath::block);
    EXPECT_EQ(of(129, on.card), EighPath::cusolver);
    EXPECT_EQ(in_double(32, on.card), EighPath::block);
    EXPECT_EQ(in_double(65, on.card), EighPath::cusolver);
  }
  EXPECT_EQ(of(128, kH200), EighPath::block);
  EXPECT_EQ(of(65, kA100), EighPath::cusolver);
  EXPECT_EQ(in_double(64, kA100), EighPath::block);
  EXPECT_EQ(in_double(33, kRtx4090), EighPath::cusolver);
  EXPECT_EQ(eigh_path<std::complex<float>>(4, 100000, kH200), EighPath::block);
}

TEST(CudaPlan, SvdOnBothSidesOfEveryLimit) {
  const auto of = [](std::int64_t n, std::int64_t batch, const Card& card = kH200) {
    return svd_path<float>(n, n, batch, card);
  };
  EXPECT_EQ(of(4, 1), SvdPath::tiny);
  EXPECT_EQ(of(5, 1), SvdPath::jacobi);
  EXPECT_EQ(of(11, 1), SvdPath::jacobi);
  EXPECT_EQ(of(12, 1), SvdPath::one_launch);
  EXPECT_EQ(of(64, 132), SvdPath::one_launch);
  EXPECT_EQ(of(64, 133), SvdPath::block);
  EXPECT_EQ(of(65, 8), SvdPath::grid);
  EXPECT_EQ(of(65, 9), SvdPath::block);
  EXPECT_EQ(of(80, 9), SvdPath::block);
  EXPECT_EQ(of(81, 32), SvdPath::grid);
  EXPECT_EQ(of(81, 33), SvdPath::block);
  EXPECT_EQ(of(128, 33), SvdPath::block);
  EXPECT_EQ(of(129, 33), SvdPath::grid);
  EXPECT_EQ(of(512, 1), SvdPath::grid);
  EXPECT_EQ(of(513, 1), SvdPath::cusolver);
  EXPECT_EQ(svd_path<double>(64, 64, 133, kH200), SvdPath::block);
  EXPECT_EQ(svd_path<double>(65, 65, 133, kH200), SvdPath::grid);
  // Tall ones that do not fit a block.
  EXPECT_EQ(svd_path<float>(3000, 16, 1, kH200), SvdPath::one_launch);
  EXPECT_EQ(svd_path<float>(40000, 16, 1, kH200), SvdPath::slices);
  EXPECT_EQ(svd_path<float>(16, 40000, 1, kH200), SvdPath::slices);
  EXPECT_EQ(svd_path<float>(4096, 64, 1, kH200), SvdPath::slices);
  EXPECT_EQ(svd_path<float>(1000, 64, 1, kH200), SvdPath::grid);
  EXPECT_EQ(svd_path<float>(100000, 128, 1, kH200), SvdPath::grid);
  EXPECT_EQ(svd_path<float>(1024, 3, 1, kH200), SvdPath::jacobi);
  EXPECT_EQ(svd_path<float>(1025, 3, 132, kH200), SvdPath::slices);
  EXPECT_EQ(svd_path<float>(1025, 3, 133, kH200), SvdPath::jacobi);
}

TEST(CudaPlan, SvdTakesAnySizeThatItsKernelsCanCount) {
  EXPECT_TRUE(svd_supports(4, 4));
  EXPECT_TRUE(svd_supports((1 << 21) - 1, 512));
  EXPECT_FALSE(svd_supports(1 << 21, 512));
  EXPECT_FALSE(svd_supports(512, 1 << 21));
  EXPECT_TRUE(svd_supports(513, 513));
  EXPECT_TRUE(svd_supports(1 << 21, 513));
}

TEST(CudaPlan, JacobiLeavesABlockWhenItsMemoryIsFull) {
  const auto fits = [](std::int64_t n, const Card& card) {
    return jacobi_fits_in_block(SvdLayout<float>(int(n), int(n)), card);
  };
  EXPECT_TRUE(fits(150, kH200));
  EXPECT_FALSE(fits(170, kH200));
  EXPECT_TRUE(fits(100, kRtx4090));
  EXPECT_FALSE(fits(150, kRtx4090));
}

TEST(CudaPlan, ClustersShareAMatrixWhileAllOfThemRunAtOnce) {
  EXPECT_TRUE(shares_matrices(64, 24, 4, 1, kH200));
  EXPECT_FALSE(shares_matrices(64, 25, 4, 1, kH200));
  EXPECT_TRUE(shares_matrices(33, 49, 4, 2, kH200));
  EXPECT_FALSE(shares_matrices(32, 1, 4, 2, kH200));
  EXPECT_FALSE(shares_matrices(64, 1, 4, 2, kA100));
}

TEST(CudaPlan, WideSpreadsAMatrixOverTheCard) {
  for (const std::int64_t n : {257, 600, 1000, 2048})
    for (const std::int64_t batch : {1, 2, 17, 132, 1000}) {
      const WideShape shape = wide_shape<float>(n, batch, kH200);
      EXPECT_EQ(shape.n, n);
      EXPECT_EQ(shape.stride % 128, 0);
      EXPECT_GE(shape.stride, n);
      EXPECT_GE(shape.blocks, 1);
      EXPECT_LE(shape.blocks, 132);
      const std::int64_t bytes =
          kWideReduceBytes<float> + 4 * shape.stride * (3 + shape.shared_rows);
      EXPECT_LE(bytes, kH200.shared_memory);
    }
  EXPECT_EQ(wide_shape<float>(600, 1, kH200).blocks, 75);  // eight rows each
}

TEST(CudaPlan, GroupsOfWholeSlabsTakeTheFastPaths) {
  EXPECT_EQ(moments_path(64, 64), MomentsPath::tensor_cores);
  EXPECT_EQ(moments_path(128, 1), MomentsPath::tensor_cores);
  EXPECT_EQ(moments_path(96, 32), MomentsPath::general);
  EXPECT_EQ(moments_path(192, 3), MomentsPath::general);
  EXPECT_EQ(moments_path(128, 128), MomentsPath::general);
  EXPECT_EQ(affine_path(64, 2), AffinePath::general);
  EXPECT_EQ(affine_path(64, 4), AffinePath::small);
  EXPECT_EQ(affine_path(64, 8), AffinePath::small);
  EXPECT_EQ(affine_path(64, 16), AffinePath::tensor_cores);
  EXPECT_EQ(affine_path(64, 64), AffinePath::tensor_cores);
  EXPECT_EQ(affine_path(96, 16), AffinePath::general);
}

/// The sizes 1 ... most for which `takes` holds, such as "1-4, 9".
std::string ranges(std::int64_t most, const std::function<bool(std::int64_t)>& takes) {
  std::string text;
  for (std::int64_t n = 1; n <= most; ++n) {
    if (!takes(n)) continue;
    const std::int64_t first = n;
    while (n < most && takes(n + 1)) ++n;
    text += (text.empty() ? "" : ", ") + std::to_string(first);
    if (n > first) text += "-" + std::to_string(n);
  }
  return text;
}

template <typename T>
void add_eigh(std::ostream& page, const NamedCard& on) {
  for (const std::int64_t batch : {std::int64_t(1), kLeastTinyBatch}) {
    if (kIsComplex<T> && batch > 1) break;  // the same
    page << "| " << on.name << " | " << (kIsComplex<T> ? "complex" : "float") << 8 * sizeof(T)
         << " | " << (kIsComplex<T> ? "any" : std::to_string(batch));
    for (const EighPath path : {EighPath::tiny, EighPath::block, EighPath::middle, EighPath::wide})
      page << " | " << ranges(kLargestWide + 1, [&](std::int64_t n) {
        return eigh_path<T>(n, batch, on.card) == path;
      });
    page << " |\n";
  }
}

template <typename T>
void add_svd(std::ostream& page, const NamedCard& on) {
  for (const std::int64_t batch : {1, 100, 1000}) {
    page << "| " << on.name << " | float" << 8 * sizeof(T) << " | " << batch;
    for (const SvdPath path :
         {SvdPath::tiny, SvdPath::jacobi, SvdPath::one_launch, SvdPath::block, SvdPath::grid})
      page << " | " << ranges(kLargestSvd, [&](std::int64_t n) {
        return svd_path<T>(n, n, batch, on.card) == path;
      });
    page << " |\n";
  }
}

std::string tables() {
  std::ostringstream page;
  page << "n of the matrices that `eigh` solves on each path; cuSOLVER solves the others:\n\n"
          "| GPU | type | batch | `tiny` | `block` | `middle` | `wide` "
          "|\n|---|---|--:|---|---|---|---|\n";
  for (const NamedCard& on : kCards) {
    add_eigh<float>(page, on);
    add_eigh<double>(page, on);
    add_eigh<std::complex<float>>(page, on);
    add_eigh<std::complex<double>>(page, on);
  }
  page << "\nn of the n x n matrices that `svd` solves on each path, up to 512; cuSOLVER solves "
          "the others:\n\n"
          "| GPU | type | batch | one thread each | Jacobi | one launch | block | grid |\n"
          "|---|---|--:|---|---|---|---|---|\n";
  for (const NamedCard& on : kCards) {
    add_svd<float>(page, on);
    add_svd<double>(page, on);
  }
  page << "\nGroup sizes for which 64 channels take each path, where sums are in float32:\n\n"
          "| stage | small | tensor cores | general |\n|---|---|---|---|\n";
  page << "| `moments` | | "
       << ranges(64, [](auto d) { return moments_path(64, d) == MomentsPath::tensor_cores; })
       << " | the others |\n| `affine` | "
       << ranges(64, [](auto d) { return affine_path(64, d) == AffinePath::small; }) << " | "
       << ranges(64, [](auto d) { return affine_path(64, d) == AffinePath::tensor_cores; })
       << " | the others |\n";
  return page.str();
}

// KEEL_WRITE_DOCS=1 writes the tables instead.
TEST(CudaPlan, TheDocsShowIt) {
  const std::string path = KEEL_SOURCE_FOLDER "/docs/architecture.md";
  std::ifstream in(path);
  const std::string page{std::istreambuf_iterator<char>(in), {}};
  const std::string begin = "<!-- tests/core/plan_test.cpp writes these tables -->\n\n",
                    end = "\n<!-- end of the tables -->\n";
  const std::size_t from = page.find(begin), to = page.find(end);
  ASSERT_NE(from, std::string::npos);
  ASSERT_NE(to, std::string::npos);
  const std::size_t start = from + begin.size();
  if (std::getenv("KEEL_WRITE_DOCS") != nullptr)
    std::ofstream(path) << page.substr(0, start) + tables() + page.substr(to);
  else
    EXPECT_EQ(page.substr(start, to - start), tables())
        << "KEEL_WRITE_DOCS=1 build/bin/keel_core_tests --gtest_filter=CudaPlan.TheDocsShowIt";
}

}  // namespace
}  // namespace keel::cuda
