#include "support.h"

#include <gtest/gtest.h>

namespace keel::test {
namespace {

Tensor rebuilt(const Eigh& eigh) {
  return eigh.eigenvectors.matmul(torch::diag_embed(eigh.eigenvalues))
      .matmul(eigh.eigenvectors.mT());
}

TEST(Eigh, TakesThePlaceOfLinalg) {
  for (const std::int64_t n : {1, 2, 3, 8, 17, 33, 64}) {
    const Tensor m = random({5, n, n}, n);  // its triangles differ
    for (const char* triangle : {"L", "U"}) {
      const auto [values, vectors] = eigh(m, Masked{}, {.uplo = *triangle});
      const auto [expected, their_vectors] = torch::linalg_eigh(m, triangle);
      EXPECT_LT(relative_error(values, expected), 1e-14 * n);
      EXPECT_LT(relative_error(vectors.square(), their_vectors.square()), 1e-12 * n);
      const Tensor whole =
          *triangle == 'L' ? m.tril() + m.tril(-1).mT() : m.triu() + m.triu(1).mT();
      EXPECT_LT(relative_error(rebuilt({values, vectors}), whole), 1e-14 * n);
      EXPECT_LT(relative_error(vectors.mT().matmul(vectors), torch::eye(n).to(at::kDouble)), 1e-13);
    }
    const auto [up, columns] = eigh(m);
    const auto [down, reversed] = eigh(m, Masked{}, {.descending = true});
    EXPECT_TRUE(torch::equal(up, down.flip(-1)));
    EXPECT_TRUE(torch::equal(columns, reversed.flip(-1)));
  }
  EXPECT_TRUE(fails_with("expected uplo 'L' or 'U', got 'x'",
                         [] { eigh(torch::eye(2), Masked{}, {.uplo = 'x'}); }));
}

// The gradient is that of the triangle that was read, in the requested order.
TEST(Eigh, GradientsInEveryOrderAndTriangleAreLinalgs) {
  const Tensor m = random({6, 6}, 11), weight = random({6, 6}, 12);
  for (const char* triangle : {"L", "U"}) {
    const Tensor expected = gradient(
        [&](const Tensor& a) {
          const auto [l, v] = torch::linalg_eigh(a, triangle);
          return (v.square() * weight).sum() + (l * weight[0]).sum();
        },
        m);
    for (const bool descending : {false, true}) {
      const Tensor ours = gradient(
          [&](const Tensor& a) {
            const auto [l, v] = eigh(a, Masked{}, {.uplo = *triangle, .descending = descending});
            const Tensor w = descending ? weight.flip(-1) : weight;
            return (v.square() * w).sum() + (l * w[0]).sum();
          },
          m);
      EXPECT_LT(relative_error(ours, expected), 1e-11) << triangle << descending;
    }
  }
}

TEST(Eigh, ValuesAloneAreLinalgs) {
  const Tensor m = random({3, 6, 6}, 13), weight = random({3, 6}, 14);
  for (const char* triangle : {"L", "U"}) {
    EXPECT_LT(relative_error(eigvalsh(m, *triangle), torch::linalg_eigvalsh(m, triangle)), 1e-14);
    const Tensor ours =
        gradient([&](const Tensor& a) { return (eigvalsh(a, *triangle) * weight).sum(); }, m);
    const Tensor theirs = gradient(
        [&](const Tensor& a) { return (torch::linalg_eigvalsh(a, triangle) * weight).sum(); }, m);
    EXPECT_LT(relative_error(ours, (theirs + theirs.mT()) / 2), 1e-12);
  }
  EXPECT_TRUE(fails_with("keel::eigvalsh: expected uplo 'L' or 'U', got 'x'",
                         [] { eigvalsh(torch::eye(2), 'x'); }));
  EXPECT_TRUE(fails_with("keel::eigvalsh: expected", [] { eigvalsh(torch::zeros({2, 3})); }));
}

TEST(Eigh, ValuesAloneMayBeEqual) {
  const Tensor twos = 2 * torch::eye(3, at::kDouble);
  const auto loss = [](const Tensor& a) { return eigvalsh(a).pow(3).sum(); };
  EXPECT_LT(relative_error(gradient(loss, twos), 6 * twos), 1e-14);
}

TEST(Eigh, TakesAnyLeadingDimensions) {
  for (const std::vector<std::int64_t>& batch :
       {std::vector<std::int64_t>{}, {1}, {3}, {2, 3}, {2, 1, 3, 2}, {0}, {2, 0, 3}}) {
    for (const std::int64_t n : {0, 1, 4}) {
      std::vector<std::int64_t> shape = batch;
      shape.push_back(n);
      const std::vector<std::int64_t> values_shape = shape;
      shape.push_back(n);
      const Tensor m = random_symmetric(shape, 3).requires_grad_(true);
      const auto [values, vectors] = eigh(m);
      EXPECT_EQ(values.sizes(), values_shape);
      EXPECT_EQ(vectors.sizes(), shape);
      EXPECT_TRUE(values.is_contiguous() && vectors.is_contiguous());
      (values.sum() + vectors.sum()).backward();
      EXPECT_EQ(m.grad().sizes(), shape);
      EXPECT_TRUE(all_finite(m.grad()));
    }
  }
}

TEST(Eigh, ReadsTheLowerTriangleOfAnyLayoutAndLeavesItAlone) {
  // The upper triangle is a different matrix, so a kernel that reads it is caught.
  const Tensor m = random({2, 3, 4, 6, 6}, 7);
  const std::vector<std::pair<const char*, Tensor>> views = {
      {"contiguous", m},
      {"transposed matrices", m.mT()},
      {"transposed batch", m.transpose(0, 2)},
      {"every other row of the batch", m.slice(1, 0, 3, 2)},
      {"a corner", m.narrow(-1, 1, 5).narrow(-2, 1, 5)},
      {"every other column", m.slice(-1, 0, 6, 2).narrow(-2, 0, 3)},
      {"expanded", m[0][0][0].expand({4, 2, 6, 6})},
      {"expanded rows", m[0][0][0][0].expand({6, 6})},
      {"one matrix", m[1][2][3]},
  };
  for (const auto& [name, view] : views) {
    const Tensor before = view.clone();
    const Tensor lower = view.tril() + view.tril(-1).mT();
    const auto [values, vectors] = eigh(view);
    EXPECT_LT(relative_error(rebuilt({values, vectors}), lower), 1e-13) << name;
    EXPECT_TRUE(torch::equal(view, before)) << name;
    // The memory layout of a tensor does not change the result.
    EXPECT_TRUE(torch::equal(values, eigh(before).eigenvalues)) << name;
    EXPECT_TRUE(torch::equal(vectors, eigh(before).eigenvectors)) << name;
  }
}

TEST(Eigh, ReadsAnImaginaryPartWithALazyMinusSign) {
  const Tensor z = torch::complex(random_symmetric({4, 4}, 1), random_symmetric({4, 4}, 2));
  const Tensor m = torch::imag(z.conj());
  EXPECT_LT(relative_error(rebuilt(eigh(m)), -torch::imag(z)), 1e-13);
}

TEST(Eigh, KeepsTheInputsType) {
  const Tensor m = geometric_spectrum(6, 0.5).expand({3, 6, 6});
  for (const auto& [type, tolerance] : std::vector<std::pair<at::ScalarType, double>>{
           {at::kDouble, 1e-13}, {at::kFloat, 1e-5}, {at::kHalf, 5e-3}, {at::kBFloat16, 3e-2}}) {
    const Tensor typed = m.to(type).clone().requires_grad_(true);
    const auto [values, vectors] = eigh(typed);
    EXPECT_EQ(values.scalar_type(), type);
    EXPECT_EQ(vectors.scalar_type(), type);
    const Tensor weight = random({6, 6}, 5).to(type);
    (vectors * weight).sum().backward();
    EXPECT_EQ(typed.grad().scalar_type(), type);
    // The truth for the rounded matrix, so that only the rounding of the answer differs.
    const Tensor exact = typed.detach().to(at::kDouble);
    EXPECT_LT(relative_error(values, eigh(exact).eigenvalues), tolerance);
    const Tensor expected = gradient(
        [&](const Tensor& x) { return (eigh(x).eigenvectors * weight.to(at::kDouble)).sum(); },
        exact);
    EXPECT_LT(relative_error(typed.grad(), expected), 4 * tolerance) << type;
    // Without a graph the answer is the same, although half types take another path through the kernels.
    const torch::NoGradGuard no_grad;
    EXPECT_TRUE(torch::equal(eigh(typed).eigenvalues, values));
    EXPECT_TRUE(torch::equal(eigh(typed).eigenvectors, vectors));
  }
}

TEST(Eigh, ANaNStaysInItsMatrixForwardAndBackward) {
  for (const std::int64_t n : {4, 40}) {
    const Tensor m = random_symmetric({5, n, n}, 11);
    Tensor bad = m.clone();
    bad[1][2][1] = std::numeric_limits<double>::quiet_NaN();
    bad[3][3][3] = std::numeric_limits<double>::infinity();
    const auto run = [n](Tensor x) {
      x.requires_grad_(true);
      const auto [values, vectors] = eigh(x);
      (values.pow(2).sum() + (vectors * random({n, n}, 3)).sum()).backward();
      return std::vector<Tensor>{values.detach(), vectors.detach(), x.grad()};
    };
    const auto good_run = run(m.clone()), bad_run = run(bad);
    for (std::size_t k = 0; k < good_run.size(); ++k) {
      for (const int index : {0, 2, 4})
        EXPECT_TRUE(torch::equal(good_run[k][index], bad_run[k][index])) << k << " " << index;
      for (const int index : {1, 3}) EXPECT_TRUE(all_nan(bad_run[k][index])) << k << " " << index;
    }
  }
}

TEST(Eigh, ResultsDoNotDependOnTheNumberOfThreads) {
  const Tensor m = random_symmetric({37, 12, 12}, 5).to(at::kFloat);
  const int before = at::get_num_threads();
  const auto run = [&](int threads) {
    EXPECT_EQ(use_all_cores(threads), threads);
    EXPECT_EQ(at::get_num_threads(), threads);
    Tensor x = m.clone().requires_grad_(true);
    const auto [values, vectors] = eigh(x, PowerIteration{});
    (values.sum() + vectors.pow(3).sum()).backward();
    return std::vector<Tensor>{values.detach(), vectors.detach(), x.grad()};
  };
  const auto one = run(1), two = run(2), three = run(3);
  for (std::size_t k = 0; k < one.size(); ++k) {
    EXPECT_TRUE(torch::equal(one[k], two[k]));
    EXPECT_TRUE(torch::equal(one[k], three[k]));
  }
  at::set_num_threads(before);
}

TEST(Eigh, LeavesNoGraphWhereNoneIsAskedFor) {
  const Tensor m = random_symmetric({4, 4}, 1);
  EXPECT_FALSE(eigh(m).eigenvalues.requires_grad());
  const Tensor leaf = m.clone().requires_grad_(true);
  {
    const torch::NoGradGuard no_grad;
    EXPECT_FALSE(eigh(leaf).eigenvalues.requires_grad());
    EXPECT_FALSE(sqrtm(leaf).requires_grad());
  }
  {
    const c10::InferenceMode inference;
    EXPECT_TRUE(torch::equal(eigh(m).eigenvalues, eigh(leaf).eigenvalues));
  }
  EXPECT_TRUE(eigh(leaf).eigenvalues.requires_grad());
}

TEST(Eigh, MetaTensorsGiveShapes) {
  const Tensor m = torch::empty({2, 3, 5, 5}, at::TensorOptions(at::kMeta).dtype(at::kHalf))
                       .requires_grad_(true);
  const auto [values, vectors] = eigh(m);
  EXPECT_TRUE(values.is_meta() && vectors.is_meta());
  EXPECT_EQ(values.sizes(), (std::vector<std::int64_t>{2, 3, 5}));
  EXPECT_EQ(vectors.sizes(), (std::vector<std::int64_t>{2, 3, 5, 5}));
  EXPECT_EQ(values.scalar_type(), at::kHalf);
  (values.sum() + vectors.sum()).backward();
  EXPECT_TRUE(m.grad().is_meta());
  EXPECT_EQ(m.grad().sizes(), m.sizes());
}

}  // namespace
}  // namespace keel::test
