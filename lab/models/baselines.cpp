#include "lab/models/baselines.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/autograd.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "keel/torch/eigh.h"

namespace keel::lab {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// (n, n): column i is the start for eigenvector i. Made once per shape, because host data cannot be copied during graph
/// capture.
Tensor starts_of(const Tensor& matrix, std::int64_t seed) {
  using Key = std::tuple<std::string, torch::Dtype, std::int64_t, std::int64_t>;
  static std::mutex guard;
  static auto& known = *new std::map<Key, Tensor>;  // never freed: the device may be gone before it
  const std::lock_guard<std::mutex> lock(guard);
  Tensor& starts = known[{matrix.device().str(), matrix.scalar_type(), matrix.size(-1), seed}];
  if (!starts.defined()) {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(std::uint64_t(seed));
    const std::int64_t n = matrix.size(-1);
    starts = torch::randn({n, n}, generator, torch::kDouble).to(matrix.options());
  }
  return starts;
}

/// Autocast would compute the products in half precision.
using NoAutocast = c10::impl::ExcludeDispatchKeyGuard;

void require_square(const char* name, const Tensor& matrix) {
  TORCH_CHECK_VALUE(matrix.dim() >= 2 && matrix.size(-1) == matrix.size(-2) && matrix.size(-1) > 0,
                    "keel::lab::", name, ": expected (..., n, n), got ", matrix.sizes());
}

/// Passes eigenpairs on, with the textbook gradient for those that are kept:
/// sum over kept j of sum over i != j of v_i (v_i . dL_dv_j) / (l_j - l_i) v_j^T, and dL_dl_j v_j v_j^T.
struct TextbookNode : torch::autograd::Function<TextbookNode> {
  static variable_list forward(AutogradContext* context, const Tensor&, const Tensor& values,
                               const Tensor& vectors, const Tensor& kept) {
    context->save_for_backward({values, vectors, kept});
    return {values.clone(), vectors.clone()};
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const Tensor &values = saved[0], &vectors = saved[1], &kept = saved[2];
    Tensor middle = at::diag_embed(gradients[0].defined() ? gradients[0] : at::zeros_like(values));
    if (gradients[1].defined()) {
      const Tensor gaps = values.unsqueeze(-2) - values.unsqueeze(-1);  // l_j - l_i
      const Tensor others = at::eye(values.size(-1), kept.options()).logical_not();
      const Tensor counts = kept.unsqueeze(-2).logical_and(others);
      const Tensor slopes = vectors.mT().matmul(gradients[1]) / gaps;
      middle = middle + at::where(counts, slopes, at::zeros_like(slopes));
    }
    const Tensor found = vectors.matmul(middle).matmul(vectors.mT());
    return {(found + found.mT()) / 2, Tensor(), Tensor(), Tensor()};
  }
};

/// Passes x on, and its gradient only where `open` is true when backward runs. `open` may change until then. A product with
/// a mask would not do: what is behind it may be NaN.
struct Gate : torch::autograd::Function<Gate> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& open) {
    context->saved_data["open"] = open;
    return x.clone();
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const Tensor open = context->saved_data["open"].toTensor();
    return {at::where(open, gradients[0], at::zeros_like(gradients[0])), Tensor()};
  }
};

/// Steps of power iteration with the backward of the paper's Eq. 3, in which the matrix is symmetric:
/// with p_k = (dL_dv_(k+1) - v_(k+1) (v_(k+1) . dL_dv_(k+1))) / |M v_k|, dL_dM is the sum of p_k v_k^T, and dL_dv_k = M p_k.
struct PowerIterationNode : torch::autograd::Function<PowerIterationNode> {
  static Tensor forward(AutogradContext* context, const Tensor& m, const Tensor& start,
                        std::int64_t iterations) {
    std::vector<Tensor> vectors{start}, lengths;
    for (std::int64_t k = 0; k < iterations; ++k) {
      const Tensor image = m.matmul(vectors.back());
      lengths.push_back(image.norm(2, {-2}, /*keepdim=*/true).clamp_min(1e-5));
      vectors.push_back(image / lengths.back());
    }
    context->save_for_backward({m, at::cat(vectors, -1), at::cat(lengths, -1)});
    return vectors.back().clone();
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const Tensor &m = saved[0], &vectors = saved[1], &lengths = saved[2];
    const std::int64_t iterations = lengths.size(-1);
    Tensor dL_dv = gradients[0];
    std::vector<Tensor> parts;
    for (std::int64_t k = iterations; k-- > 0;) {
      const Tensor v = vectors.narrow(-1, k + 1, 1);
      parts.push_back((dL_dv - v * v.mT().matmul(dL_dv)) / lengths.narrow(-1, k, 1));
      dL_dv = m.matmul(parts.back());
    }
    std::reverse(parts.begin(), parts.end());
    return {at::cat(parts, -1).matmul(vectors.narrow(-1, 0, iterations).mT()), Tensor(), Tensor()};
  }
};

}  // namespace

std::tuple<Tensor, Tensor> power_method(const Tensor& matrix, const PowerMethod& options) {
  require_square(options.kName, matrix);
  term::check(options.kName, options);
  const NoAutocast no_autocast(c10::autocast_dispatch_keyset);
  const Tensor starts = starts_of(matrix, options.seed);
  // Plain differentiable operations throughout, so that autograd unrolls the iteration. That is the baseline.
  Tensor deflated = (matrix + matrix.mT()) / 2;
  std::vector<Tensor> values, vectors;
  for (std::int64_t i = 0; i < matrix.size(-1); ++i) {
    Tensor v = starts.narrow(-1, i, 1);
    for (std::int64_t k = 0; k < options.iterations; ++k) {
      v = deflated.matmul(v);
      v = v / v.norm(2, {-2}, /*keepdim=*/true);
    }
    const Tensor image = deflated.matmul(v);
    values.push_back((v * image).sum({-2, -1}));
    vectors.push_back(v.squeeze(-1));
    deflated = deflated - image.matmul(v.mT());
  }
  return {at::stack(values, -1), at::stack(vectors, -1)};
}

Eigenpairs textbook(const Tensor& matrix, const std::function<Tensor(const Tensor&)>& kept) {
  require_square(Textbook::kName, matrix);
  const NoAutocast no_autocast(c10::autocast_dispatch_keyset);
  const Eigh solved = eigh(matrix.detach(), Masked{}, {.descending = true});
  const Tensor mask = kept(solved.eigenvalues);
  const auto pairs = TextbookNode::apply(matrix, solved.eigenvalues, solved.eigenvectors, mask);
  return {pairs[0], pairs[1], mask};
}

Eigenpairs released_textbook(const Tensor& matrix, double eps, const ReleasedTextbook& options) {
  require_square(options.kName, matrix);
  term::check(options.kName, options);
  const NoAutocast no_autocast(c10::autocast_dispatch_keyset);
  Tensor values, vectors;
  try {
    const auto [u, s, v] = at::svd(matrix);
    values = s;
    vectors = v;
  } catch (const c10::LinAlgError&) {  // a trial that fails, not a program
    values = matrix.select(-1, 0) * std::nan("");
    vectors = matrix * std::nan("");
  }
  const Tensor small = values.detach() <= eps, count = small.cumsum(-1);
  const Tensor none = at::logical_not(small.any(-1, /*keepdim=*/true));
  const Tensor before = (count - small.to(count.scalar_type())) == 0;
  const auto places = at::arange(values.size(-1), count.options());
  return {values, vectors,
          options.slip ? before.logical_and(none.logical_not().logical_or(places == 0)) : before};
}

Eigenpairs released_power_iteration(const Tensor& matrix, double eps,
                                    const ReleasedPowerIteration& options) {
  require_square(options.kName, matrix);
  term::check(options.kName, options);
  const NoAutocast no_autocast(c10::autocast_dispatch_keyset);
  const std::int64_t n = matrix.size(-1);
  std::vector<std::int64_t> shape = matrix.sizes().vec();
  shape.back() = 1;
  std::vector<std::int64_t> one = shape;
  one[one.size() - 2] = 1;
  Tensor deflated = matrix, going, before;
  std::vector<Tensor> values, vectors, kept;
  for (std::int64_t i = 0; i < n; ++i) {
    // What comes after the stop has no gradient, not even NaN.
    const Tensor open = at::ones(one, matrix.options().dtype(at::kBool));
    const Tensor here = Gate::apply(deflated, open);
    const Tensor start = at::randn(shape, matrix.options());
    const Tensor v = PowerIterationNode::apply(here, start / start.norm(2, {-2}, /*keepdim=*/true),
                                               options.iterations);
    const Tensor image = here.matmul(v);
    const Tensor value = (v * image).sum({-2}, true) / (v * v).sum({-2}, true),
                 now = value.detach();
    // As released: comparisons with NaN are false, and do not stop it.
    going = i == 0 ? at::ones_like(open)
                   : going.logical_and((now > before).logical_or(now < eps).logical_not());
    open.copy_(going);
    before = now;
    values.push_back(at::where(going, value, at::zeros_like(value)).squeeze(-1).squeeze(-1));
    vectors.push_back(at::where(going, v, at::zeros_like(v)).squeeze(-1));
    kept.push_back(going.squeeze(-1).squeeze(-1));
    deflated = here - image.matmul(v.mT());
  }
  return {at::stack(values, -1), at::stack(vectors, -1), at::stack(kept, -1)};
}

Tensor newton_schulz(const Tensor& matrix, const NewtonSchulz& options) {
  require_square(options.kName, matrix);
  term::check(options.kName, options);
  const NoAutocast no_autocast(c10::autocast_dispatch_keyset);
  const Tensor trace = matrix.diagonal(0, -2, -1).sum(-1).unsqueeze(-1).unsqueeze(-1);
  const Tensor scaled = matrix / trace;
  Tensor root = at::eye(matrix.size(-1), matrix.options()).expand_as(matrix);
  for (std::int64_t k = 0; k < options.iterations; ++k)
    root = 1.5 * root - 0.5 * root.matmul(root).matmul(root).matmul(scaled);
  return root * trace.rsqrt();
}

}  // namespace keel::lab
