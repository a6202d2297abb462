// Complex matrices by the C++ functions. tests/python/test_complex.py has their numbers.

#include "support.h"

namespace keel::test {
namespace {

Tensor hermitian(std::int64_t n) {
  const Tensor z = torch::complex(random({n, n}, 1), random({n, n}, 2));
  return (z + z.mH()) / 2;
}

TEST(Complex, EighReadsEitherTriangle) {
  const Tensor m = hermitian(5);
  const auto [values, vectors] = eigh(m.tril());
  EXPECT_EQ(values.scalar_type(), at::kDouble);
  EXPECT_TRUE(torch::allclose(vectors.matmul(values.unsqueeze(-1) * vectors.mH()), m));
  const auto [same, upper] = eigh(m.triu(), Masked{}, {.uplo = 'U', .descending = true});
  EXPECT_TRUE(torch::equal(same.flip(-1), values) && torch::equal(upper.flip(-1), vectors));
  EXPECT_TRUE(torch::allclose(eigvalsh(m.triu(), 'U'), values));
}

TEST(Complex, FunctionsOfYourOwnAreTheNamedOnes) {
  const Tensor h = hermitian(4), a = torch::complex(random({4, 3}, 3), random({4, 3}, 4));
  const auto same = [](const Tensor& m, const auto& own, const auto& named) {
    const Tensor x = m.clone().requires_grad_(), y = m.clone().requires_grad_();
    const Tensor found = own(x), expected = named(y);
    EXPECT_TRUE(torch::allclose(found, expected));
    torch::imag(found).sum().backward();
    torch::imag(expected).sum().backward();
    EXPECT_TRUE(torch::allclose(x.grad(), y.grad()));
  };
  same(
      h,
      [](const Tensor& m) { return spectral(m, [](const Tensor& l) { return l.exp(); }).result; },
      [](const Tensor& m) { return expm(m); });
  same(
      a,
      [](const Tensor& m) {
        return singular(m, [](const Tensor& s) { return s.pow(1.5); }).result;
      },
      [](const Tensor& m) { return singular(m, PowerOfValues{1.5}).result; });
  EXPECT_TRUE(fails_with("expected a function of your own to have real values", [&] {
    spectral(h, [](const Tensor& l) { return torch::complex(l, l); });
  }));
  const auto shares = [](const Tensor& l) { return l / l.sum(-1, true); };
  EXPECT_EQ(spectral(h, shares).result.sizes(), h.sizes());
  for (const auto& by_others :
       std::vector<std::function<void()>>{[&] { spectral(h.clone().requires_grad_(), shares); },
                                          [&] { singular(a.clone().requires_grad_(), shares); }})
    EXPECT_TRUE(fails_with("to map each eigenvalue by itself", by_others));
}

TEST(Complex, FactorsOfRectangles) {
  const Tensor a = torch::complex(random({2, 5, 3}, 5), random({2, 5, 3}, 6));
  const auto [u, s, vh] = keel::svd(a);
  EXPECT_TRUE(torch::allclose(u.matmul(s.unsqueeze(-1) * vh), a));
  const auto [factor, positive] = polar(a);
  EXPECT_TRUE(torch::allclose(factor.matmul(positive), a));
  EXPECT_TRUE(torch::allclose(factor, procrustes(a)) && torch::allclose(factor, u.matmul(vh)));
  EXPECT_TRUE(torch::allclose(keel::nuclear_norm(a), svdvals(a).sum(-1)));
  EXPECT_TRUE(torch::allclose(a.matmul(pinv(a)).matmul(a), a));
}

}  // namespace
}  // namespace keel::test
