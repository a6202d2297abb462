// Tests every operator on random matrices with known eigenvalues and eigenvectors, forward and backward, against the
// truth in 113 bits. A round is one matrix, made from its seed alone. KEEL_ROUNDS=1000 runs more than kQuick rounds,
// with sizes up to 1024; KEEL_SEED=17 repeats round 17.
//
// The bounds. Rounding the entries and solving moves M by some E with |E| <= eta = 8 n eps |M| (backward stability), so
// |E|_F <= sqrt(n) eta. Then, exactly, f(M + E) - f(M) has the entries f[a_i, l_j] E_ij in the two eigenbases, so it is
// at most sup |f'| |E|_F. Df(M)[C], the gradient of <C, f(M)>, moves by D2f[C, E], at most sup |f''| |C|_F |E|_F, since
// its second divided differences are at most sup |f''| / 2. Evaluation adds 8 n eps of the summands. Suprema are over
// [l_min - eta, l_max + eta], where |f'| and |f''| are monotone or grow away from zero, so they are at its ends.

#include <gtest/gtest.h>
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <limits>
#include <optional>

#include "support.h"
#include "support/quad.h"

namespace keel::test {
namespace {

constexpr std::uint64_t kQuick = 150;

std::uint64_t number_from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

struct Function {
  std::string name;
  std::function<Quad(Quad)> f, slope, curvature;
  std::function<Tensor(const Tensor&)> call;
};

Function power(double p) {
  const Quad e = p;
  return {"powm " + std::to_string(p), [e](Quad x) { return powq(x, e); },
          [e](Quad x) { return e * powq(x, e - 1); },
          [e](Quad x) { return e * (e - 1) * powq(x, e - 2); },
          [p](const Tensor& m) { return powm(m, p); }};
}

/// Like power(p), but with the function's own name and operator.
Function root(const char* name, double p, Tensor (*call)(const Tensor&, const SpectralRule&)) {
  Function function = power(p);
  function.name = name;
  function.call = [call](const Tensor& m) { return call(m, Exact{}); };
  return function;
}

Function logarithm() {
  return {"logm", logq, [](Quad x) { return 1 / x; }, [](Quad x) { return -1 / (x * x); },
          [](const Tensor& m) { return logm(m); }};
}

Function exponential() {
  return {"expm", expq, expq, expq, [](const Tensor& m) { return expm(m); }};
}

/// A matrix, its truth, and a random number generator.
class Round {
 public:
  explicit Round(std::uint64_t seed) : seed_(seed), random_(seed) {
    type_ = pick(2) == 0 ? at::kFloat : at::kDouble;
    // Mostly small ones: there the kernels differ most and cost least.
    const std::int64_t widest = seed > kQuick && pick(50) == 0 ? 1024 : pick(10) == 0 ? 160 : 40;
    n_ = 1 + pick(widest);
  }

  void run() {
    switch (pick(5)) {
      case 0:
        return eigenvalues_and_their_losses();
      case 1:
        return projectors();
      case 2:
        return eigenvectors_under_every_rule();
      default:
        return functions();
    }
  }

  std::string what() const {
    return what_ + ", n " + std::to_string(n_) + (type_ == at::kFloat ? ", float32" : ", float64") +
           "; once more: KEEL_SEED=" + std::to_string(seed_);
  }

 private:
  std::int64_t pick(std::int64_t count) {
    return std::uniform_int_distribution<std::int64_t>(0, count - 1)(random_);
  }
  double between(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random_);
  }
  double epsilon() const {
    return type_ == at::kFloat ? double(std::numeric_limits<float>::epsilon())
                               : std::numeric_limits<double>::epsilon();
  }

  /// Descending, in [0, 1] with largest value 1: apart, in clusters, equal in groups, graded, or with zeros. Without
  /// zeros, all values are at least four times the possible rounding away from zero.
  std::vector<Quad> spectrum(bool zeros) {
    std::vector<double> l(static_cast<std::size_t>(n_));
    const std::int64_t kind = pick(zeros ? 5 : 4);
    const std::int64_t groups = 1 + pick(4);
    const double spread = std::pow(10, between(-12, -3)), range = between(1, 6);
    for (double& x : l) {
      const double group = double(1 + pick(groups)) / double(groups);
      if (kind == 0) x = between(0.05, 1);
      if (kind == 1) x = group * (1 - spread * between(0, 1));
      if (kind == 2) x = group;
      if (kind == 3) x = std::pow(10, -range * between(0, 1));
      if (kind == 4) x = pick(2) == 0 ? 0 : group;
    }
    l[0] = 1;
    std::sort(l.rbegin(), l.rend());
    if (!zeros)
      for (double& x : l) x = std::max(x, 4 * room());
    what_ += std::vector<std::string>{", distinct", ", clustered", ", repeated", ", graded",
                                      ", rank-deficient"}[std::size_t(kind)];
    return {l.begin(), l.end()};
  }

  /// eta for a matrix of norm 1.
  double room() const { return 8 * double(n_) * epsilon(); }

  void set(std::vector<Quad> values, double scale = 1) {
    for (Quad& l : values) l *= Quad(scale);
    values_ = values;
    basis_.emplace(n_, random_);
    matrix_ = rounded(basis_->out_of(diagonal(values_)));
    eta_ = room() * double(std::max(fabsq(values_.front()), fabsq(values_.back())));
    // Symmetric weights of the loss, with the same numbers in every type.
    QuadMatrix c(n_);
    for (std::int64_t i = 0; i < n_; ++i)
      for (std::int64_t j = 0; j <= i; ++j) c(i, j) = c(j, i) = Quad(float(between(-1, 1)));
    weights_ = rounded(c);
    weights_size_ = frobenius(c);
    weights_inside_.emplace(basis_->into(c));
  }

  Tensor rounded(const QuadMatrix& a) const {
    const Tensor result = torch::empty({n_, n_}, type_);
    AT_DISPATCH_FLOATING_TYPES(type_, "rounded", [&] {
      scalar_t* to = result.data_ptr<scalar_t>();
      for (const Quad& x : a.entries) *to++ = scalar_t(x);
    });
    return result;
  }

  /// | computed - truth |_F
  double distance(const Tensor& computed, const QuadMatrix& truth) const {
    const Tensor c = computed.detach().to(at::kDouble).contiguous();
    const double* from = c.data_ptr<double>();
    Quad sum = 0;
    for (const Quad& x : truth.entries) {
      const Quad difference = Quad(*from++) - x;
      sum += difference * difference;
    }
    return double(sqrtq(sum));
  }

  /// V (kernel(i, j) o C) V^T, where C are the weights in the eigenbasis.
  template <typename Kernel>
  QuadMatrix gradient_by(const Kernel& kernel) const {
    QuadMatrix inside = *weights_inside_;
    for (std::int64_t i = 0; i < n_; ++i)
      for (std::int64_t j = 0; j <= i; ++j)
        inside(i, j) = inside(j, i) = inside(i, j) * kernel(j, i);
    return basis_->out_of(inside);
  }

  Tensor gradient_of(const Loss& loss) const { return gradient(loss, matrix_); }

  void functions() {
    const double p = between(-3, 3), exponent = pick(3) == 0 ? double(2 + pick(2)) : p;
    const std::vector<Function> all = {root("sqrtm", 0.5, sqrtm),
                                       root("inv_sqrtm", -0.5, inv_sqrtm),
                                       root("invm", -1, invm),
                                       logarithm(),
                                       exponential(),
                                       power(exponent)};
    const std::int64_t chosen = pick(std::int64_t(all.size()));
    const Function& function = all[std::size_t(chosen)];
    what_ = function.name;
    const bool entire = chosen == 4 || (chosen == 5 && exponent == std::floor(exponent));
    std::vector<Quad> values = spectrum(/*zeros=*/entire);
    if (entire && pick(2) == 0) {
      for (Quad& l : values) l = pick(2) == 0 ? l : -l;
      std::sort(values.rbegin(), values.rend());
    }
    set(values, chosen == 4 ? between(0.1, 5) : std::pow(10, between(-3, 3)));

    std::vector<Quad> image;
    for (const Quad& l : values_) image.push_back(function.f(l));
    const Quad low = values_.back() - eta_, high = values_.front() + eta_;
    const double slope = double(std::max(fabsq(function.slope(low)), fabsq(function.slope(high))));
    const double curvature =
        double(std::max(fabsq(function.curvature(low)), fabsq(function.curvature(high))));
    const double moved = std::sqrt(double(n_)) * eta_, rounding = room();
    const QuadMatrix result = basis_->out_of(diagonal(image));
    EXPECT_LE(distance(function.call(matrix_), result),
              slope * moved + rounding * frobenius(diagonal(image)))
        << what();

    const auto quotient = [&](std::int64_t i, std::int64_t j) {
      const Quad x = values_[i], y = values_[j];
      // For closer values the quotient in 113 bits has fewer digits than f' at the middle.
      if (fabsq(x - y) <= Quad(1e-17) * fabsq(x)) return function.slope((x + y) / 2);
      return (image[i] - image[j]) / (x - y);
    };
    const Tensor g =
        gradient_of([&](const Tensor& m) { return (function.call(m) * weights_).sum(); });
    EXPECT_LE(distance(g, gradient_by(quotient)),
              (curvature * moved + rounding * slope) * weights_size_)
        << "gradient of " << what();
  }

  /// Weyl: an eigenvalue moves by at most |E|. The gradient of sum l^3 is 3 M^2, under every rule.
  void eigenvalues_and_their_losses() {
    what_ = "eigenvalues";
    set(spectrum(/*zeros=*/true), std::pow(10, between(-3, 3)));
    const Tensor found = leading_first(matrix_).eigenvalues.to(at::kDouble).contiguous();
    double worst = 0;
    for (std::int64_t i = 0; i < n_; ++i)
      worst = std::max(worst,
                       double(fabsq(Quad(found.data_ptr<double>()[i]) - values_[std::size_t(i)])));
    EXPECT_LE(worst, eta_) << what();
    std::vector<Quad> slopes;
    for (const Quad& l : values_) slopes.push_back(3 * l * l);
    const QuadMatrix truth = basis_->out_of(diagonal(slopes));
    const double largest = double(values_.front());
    for (const GradientRule& rule :
         {GradientRule(Masked{}), GradientRule(PowerIteration{}), GradientRule(Lorentzian{})}) {
      const Tensor g = gradient_of(
          [&](const Tensor& m) { return leading_first(m, rule).eigenvalues.pow(3).sum(); });
      EXPECT_LE(distance(g, truth), 6 * (largest + eta_) * std::sqrt(double(n_)) * eta_ +
                                        room() * frobenius(diagonal(slopes)))
          << to_string(rule) << ", " << what();
    }
  }

  /// Projectors on the eigenvectors above a gap of a half: f steps from 0 to 1 there, and f[x, y] = 1 / (x - y)
  /// across the gap, f[x, y, z] at most its square. The series has converged after 60 terms.
  void projectors() {
    what_ = "projector";
    const std::int64_t kept = 1 + pick(n_);
    const bool equal = pick(2) == 0;
    std::vector<Quad> values;
    for (std::int64_t i = 0; i < n_; ++i) {
      const double place = equal ? 0 : double(i) / double(n_);
      values.push_back(i < kept ? 1 - 0.3 * place : 0.2 * (1 - place));
    }
    set(values, std::pow(10, between(-3, 3)));
    const double gap = 0.5 * double(values_.front()), moved = std::sqrt(double(n_)) * eta_;
    std::vector<Quad> ones(static_cast<std::size_t>(n_), Quad(0));
    std::fill_n(ones.begin(), kept, Quad(1));
    const auto step = [&](std::int64_t i, std::int64_t j) {
      return (i < kept) == (j < kept) ? Quad(0) : 1 / fabsq(values_[i] - values_[j]);
    };
    const QuadMatrix result = basis_->out_of(diagonal(ones)), truth = gradient_by(step);
    const double bound = (2 * moved / (gap * gap) + room() / gap) * weights_size_;
    const auto by_spectral = [&](const Tensor& m) {
      return projector(m, LeadingCount{kept}, Exact{60});
    };
    // Within a group the masked rule skips pairs that are equal up to rounding.
    const auto by_eigh = [&](const Tensor& m) {
      const Tensor v = leading_first(m, Masked{4 * room()}).eigenvectors.narrow(-1, 0, kept);
      return v.matmul(v.mT());
    };
    for (const auto& call : {std::function<Tensor(const Tensor&)>(by_spectral),
                             std::function<Tensor(const Tensor&)>(by_eigh)}) {
      EXPECT_LE(distance(call(matrix_), result), moved / gap + room() * std::sqrt(double(kept)))
          << what();
      const Tensor g = gradient_of([&](const Tensor& m) { return (call(m) * weights_).sum(); });
      EXPECT_LE(distance(g, truth), bound) << "gradient of " << what();
    }
  }

  /// L = sum_i w_i v_i^T C v_i: B_ji = 2 w_i C_ij, so each rule's W is a kernel times C. Eigenvectors turn by
  /// |E| / gap, two of them outside of W and two inside. The kernel of T terms moves by at most (T^2 + T) / l^2, the
  /// others by 1 / gap^2.
  void eigenvectors_under_every_rule() {
    n_ = 1 + n_ % 24;
    what_ = "eigenvectors";
    std::vector<Quad> values;
    for (std::int64_t i = 0; i < n_; ++i) values.push_back(1 - 0.7 * double(i) / double(n_));
    set(values);
    std::vector<double> w;
    for (std::int64_t i = 0; i < n_; ++i) w.push_back(float(between(-1, 1)));
    const Tensor w_tensor = torch::tensor(w, at::kDouble).to(type_);
    const auto sum = [](int terms, Quad q) {
      Quad total = 0, term = 1;
      for (int k = 0; k < terms; ++k, term *= q) total += term;
      return total;
    };
    const int terms = 1 + int(pick(30));
    const double width = std::pow(10, between(-6, -1)), gap = 0.7 / double(n_);
    using Kernel = std::function<Quad(std::int64_t, std::int64_t)>;
    const auto difference = [&](std::int64_t i, std::int64_t j) { return Quad(w[i] - w[j]); };
    const auto apart = [&](std::int64_t i, std::int64_t j) { return values_[i] - values_[j]; };
    const auto ratio = [&](std::int64_t i, std::int64_t j) { return values_[j] / values_[i]; };
    const Kernel analytic = [&](auto i, auto j) { return difference(i, j) / apart(i, j); };
    const Kernel power_iteration = [&](auto i, auto j) {
      const Quad q = ratio(i, j);
      return (sum(terms, q) * w[i] - sum(terms - 1, q) * w[j]) / values_[i];
    };
    const Kernel taylor = [&](auto i, auto j) {
      return sum(terms, ratio(i, j)) * difference(i, j) / values_[i];
    };
    const Kernel lorentzian = [&](auto i, auto j) {
      return difference(i, j) * apart(i, j) / (apart(i, j) * apart(i, j) + Quad(width) * width);
    };
    for (const auto& [rule, kernel] :
         std::vector<std::pair<GradientRule, Kernel>>{{Analytic{}, analytic},
                                                      {Masked{}, analytic},
                                                      {PowerIteration{terms}, power_iteration},
                                                      {Taylor{terms}, taylor},
                                                      {Lorentzian{width}, lorentzian}}) {
      double largest = 0;
      const auto off_diagonal = [&](std::int64_t i, std::int64_t j) {
        const Quad k = i == j ? Quad(0) : kernel(i, j);
        largest = std::max(largest, double(fabsq(k)));
        return k;
      };
      const QuadMatrix truth = gradient_by(off_diagonal);
      const Tensor g = gradient_of([&](const Tensor& m) {
        const Tensor v = leading_first(m, rule).eigenvectors;
        return (v.mT().matmul(weights_).matmul(v).diagonal() * w_tensor).sum();
      });
      const double slope = 2 * std::max((terms * terms + terms) / 0.09, 1 / (gap * gap));
      EXPECT_LE(distance(g, truth),
                ((4 * largest / gap + slope) * std::sqrt(double(n_)) * eta_ + room() * largest) *
                    weights_size_)
          << to_string(rule) << ", " << what();
    }
  }

  std::uint64_t seed_;
  std::mt19937_64 random_;
  at::ScalarType type_;
  std::int64_t n_;
  std::string what_;
  std::vector<Quad> values_;
  std::optional<QuadBasis> basis_;
  std::optional<QuadMatrix> weights_inside_;
  Tensor matrix_, weights_;
  double eta_ = 0, weights_size_ = 0;
};

TEST(Property, OperatorsAreWithinTheirConditionOfTheTruth) {
  const std::uint64_t again = number_from_environment("KEEL_SEED", 0);
  const std::uint64_t last = again ? again : number_from_environment("KEEL_ROUNDS", kQuick);
  for (std::uint64_t seed = again ? again : 1; seed <= last; ++seed) Round(seed).run();
}

}  // namespace
}  // namespace keel::test
