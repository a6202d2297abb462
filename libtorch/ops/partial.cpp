// eigsh and svds: the values that krylov.h finds, and their gradient, which is solved for by products too.

#include "keel/torch/partial.h"

#include <memory>
#include <sstream>

#include "autograd.h"
#include "check.h"
#include "device.h"
#include "gradient_rule_formula.h"
#include "krylov.h"
#include "ops/operators.h"

namespace keel::ops {
namespace {

constexpr int kIterations = 200, kIterationsCaptured = 40;  // of conjugate gradients

/// Where a matrix comes from: a tensor, dense or sparse, or an operator.
struct Source {
  std::string operation;  ///< "keel::eigsh"
  Tensor matrix;          ///< undefined for an operator
  const LinearOperator* given = nullptr;
};

/// What the backward pass needs beyond the results.
struct Solved {
  std::string operation, rule;
  Map map;
  Found found;
  Tensor sign;  ///< (..., k, 1): -1 for values at the lower end of the spectrum
};

std::string shape_text(at::IntArrayRef sizes) {
  std::ostringstream out;
  for (const std::int64_t size : sizes) out << (out.tellp() == 0 ? "(" : ", ") << size;
  return out.str() + ")";
}

/// A caller's function of columns as one of rows, and what it returns checked.
std::function<Tensor(const Tensor&)> of_rows(const std::string& operation, const char* name,
                                             std::function<Tensor(const Tensor&)> function,
                                             std::int64_t height) {
  if (!function) return {};
  return [=](const Tensor& rows) {
    const Tensor x = rows.mT(), y = function(x);
    auto sizes = x.sizes().vec();
    sizes[sizes.size() - 2] = height;
    TORCH_CHECK_VALUE(y.defined() && y.sizes() == sizes && y.scalar_type() == x.scalar_type(),
                      operation, ": expected ", name, " to return ", shape_text(sizes), " of ",
                      name_of(x.scalar_type()), ", got ",
                      y.defined() ? shape_of(y) + " of " + name_of(y.scalar_type()) : "nothing");
    return y.mT();
  };
}

struct Pattern {
  Tensor rows, columns, values;
};

/// Where a sparse matrix has entries, in its order.
Pattern pattern_of(const Tensor& matrix) {
  if (matrix.layout() == at::kSparse) {
    const Tensor all = matrix.coalesce();
    return {all.indices().select(0, 0), all.indices().select(0, 1), all.values()};
  }
  const Tensor counts = matrix.crow_indices().diff();
  const Tensor rows = at::arange(matrix.size(0), counts.options()).repeat_interleave(counts);
  return {rows, matrix.col_indices(), matrix.values()};
}

Tensor sparse_rows(const Tensor& rows, const Tensor& columns, const Tensor& values,
                   at::IntArrayRef sizes) {
  return at::sparse_coo_tensor(at::stack({rows, columns}), values, sizes)
      .coalesce()
      .to_sparse_csr();
}

Map map_of(const Source& source, bool symmetric) {
  Map map;
  map.symmetric = symmetric;
  const char* const operation = source.operation.c_str();
  if (source.given) {
    const LinearOperator& op = *source.given;
    const auto type = op.options.dtype().toScalarType();
    TORCH_CHECK_VALUE(op.shape.size() >= 2 && (type == at::kFloat || type == at::kDouble),
                      operation,
                      ": expected an operator of shape (..., m, n) and of float32 or "
                      "float64, got ",
                      shape_text(op.shape), " of ", name_of(type));
    map.m = op.shape[op.shape.size() - 2];
    map.n = op.shape.back();
    map.batch.assign(op.shape.begin(), op.shape.end() - 2);
    map.options = at::TensorOptions().dtype(type).device(op.options.device());
    map.times = of_rows(source.operation, "apply", op.apply, map.m);
    map.adjoint = of_rows(source.operation, "adjoint", op.adjoint, map.n);
    TORCH_CHECK_VALUE(map.times && (symmetric || map.adjoint), operation,
                      ": expected an operator with ", map.times ? "adjoint" : "apply");
    return map;
  }
  const auto type = source.matrix.scalar_type();
  TORCH_CHECK_VALUE(source.matrix.dim() >= 2 && (type == at::kFloat || type == at::kDouble ||
                                                 type == at::kHalf || type == at::kBFloat16),
                    operation, ": expected real floating point (..., m, n), got ",
                    shape_of(source.matrix), " of ", name_of(type));
  const Tensor fixed = in_compute_type(source.matrix.detach());
  map.m = fixed.size(-2);
  map.n = fixed.size(-1);
  map.batch = fixed.sizes().slice(0, std::size_t(fixed.dim() - 2)).vec();
  map.options = at::TensorOptions().dtype(fixed.scalar_type()).device(fixed.device());
  if (fixed.layout() == at::kStrided) {
    check_rectangles(operation, fixed);
    map.dense = true;
    map.times = [fixed](const Tensor& rows) { return thin_product(rows, fixed, false); };
    map.adjoint = [fixed](const Tensor& rows) { return thin_product(rows, fixed, true); };
    return map;
  }
  TORCH_CHECK_VALUE(
      (fixed.layout() == at::kSparse || fixed.layout() == at::kSparseCsr) && fixed.dim() == 2,
      operation, ": expected sparse COO or CSR of two dimensions, got ", fixed.layout(), " of ",
      shape_of(fixed));
  const Tensor forth = fixed.layout() == at::kSparseCsr ? fixed : fixed.coalesce().to_sparse_csr();
  map.times = [forth](const Tensor& rows) { return at::matmul(forth, rows.mT()).mT(); };
  if (!symmetric) {
    const Pattern entries = pattern_of(fixed);
    const Tensor back = sparse_rows(entries.columns, entries.rows, entries.values, {map.n, map.m});
    map.adjoint = [back](const Tensor& rows) { return at::matmul(back, rows.mT()).mT(); };
  }
  return map;
}

/// Solves (l_i - M) x_i = g_i for all i, orthogonal to the kept vectors, by projected conjugate gradients: there the
/// matrix has no eigenvalue beyond l_i. For svds, M is [0 A; A^T 0], and x has two parts.
///
/// The approximate vectors beyond the kept ones precondition it. Where such a value is equal to l_i, its direction gets
/// 0, as under Masked. What remains of a degenerate cut is bounded by the number of iterations.
std::pair<Tensor, Tensor> solve_outside(const Solved& solved, const Tensor& grad_left,
                                        const Tensor& grad_right) {
  const auto& [map, found, sign] = std::tie(solved.map, solved.found, solved.sign);
  const Tensor size = at::where(found.largest > 0, found.largest, at::ones_like(found.largest))
                          .unsqueeze(-1)
                          .unsqueeze(-1);
  const std::int64_t m = map.m, n = map.n;
  const Tensor values = found.values.unsqueeze(-1) / size;     // (..., k, 1)
  const Tensor more = found.more_values.unsqueeze(-2) / size;  // (..., 1, others)
  Tensor kept = found.right, others = found.more_right, rhs = grad_right;
  if (!map.symmetric) {
    const auto zeros = [](const Tensor& x) { return at::zeros_like(x); };
    kept = at::cat({at::cat({found.left, zeros(found.right)}, -1),
                    at::cat({zeros(found.left), found.right}, -1)},
                   -2);
    others = at::cat({found.more_left, found.more_right}, -1) / std::sqrt(2.0);
    rhs = at::cat({grad_left.defined() ? grad_left : zeros(found.left),
                   grad_right.defined() ? grad_right : zeros(found.right)},
                  -1);
  }
  const auto shifted = [&](const Tensor& p) {
    const Tensor image =
        map.symmetric
            ? map.times(p)
            : at::cat({map.times(p.narrow(-1, m, n)), map.adjoint(p.narrow(-1, 0, m))}, -1);
    return sign * (values * p - image / size);
  };
  const double epsilon = epsilon_of(rhs);
  const double equal = 10 * std::sqrt(double(std::max(m, n))) * epsilon;
  const Tensor gaps = sign * (values - more);
  const Tensor top = gaps.size(-1) ? gaps.amax(-1, true) : gaps;
  const Tensor tied = gaps <= equal;
  const Tensor weights = (top / gaps.clamp_min(equal) - 1).masked_fill(tied, 0);
  const Tensor barred =
      at::cat({at::ones({}, rhs.options()).expand(map.sizes({rhs.size(-2), kept.size(-2)})),
               tied.to(rhs.scalar_type())},
              -1);
  const Tensor basis = at::cat({kept, others}, -2);
  const auto projected = [&](const Tensor& r) {
    return r - thin_product(barred * thin_product(r, basis, false), basis, true);
  };
  const auto conditioned = [&](const Tensor& r) {
    if (others.size(-2) == 0) return projected(r);
    return projected(r + thin_product(weights * thin_product(r, others, false), others, true));
  };
  Tensor height = rhs.abs().amax({-2, -1}, true);
  height = at::where(height > 0, height.log2().floor().exp2(), at::ones_like(height));
  Tensor r = rhs / height;
  if (!map.symmetric) r = r * (values > equal);  // a value of 0 has no gap to the null space
  const auto dot = [](const Tensor& a, const Tensor& b) { return (a * b).sum(-1, true); };
  // What rounding leaves of g.
  const Tensor noise = dot(r, r).amax(-2, true) * std::pow(4 * epsilon, 2);
  r = projected(projected(r));
  Tensor x = at::zeros_like(r), p = conditioned(r), product = dot(r, p);
  const Tensor least = at::maximum(noise, product.amax(-2, true) * std::pow(2 * epsilon, 2));
  const bool capturing = r.is_cuda() && capturing_on_cuda(r);
  for (int i = 0; i < (capturing ? kIterationsCaptured : kIterations); ++i) {
    const Tensor active = product > least;
    if (i % 4 == 0 && !capturing && !active.any().item<bool>()) break;
    const Tensor q = projected(shifted(p));  // outside, curvatures are negative
    const Tensor curvature = dot(p, q), usable = active.logical_and(curvature > 0);
    const Tensor length = (product / curvature).masked_fill(usable.logical_not(), 0);
    x = x + length * p;
    r = r - length * q;
    const Tensor z = conditioned(r), now = dot(r, z).masked_fill(usable.logical_not(), 0);
    p = z + (now / product).masked_fill(usable.logical_not(), 0) * p;
    product = now;
  }
  x = projected(sign * x * (height / size));
  if (map.symmetric) return {x, x};
  return {x.narrow(-1, 0, m), x.narrow(-1, m, n)};
}

Tensor unit_matrices(const Tensor& like, std::int64_t k) {
  auto sizes = like.sizes().slice(0, std::size_t(like.dim() - 2)).vec();
  sizes.insert(sizes.end(), {k, k});
  return at::eye(k, like.options()).expand(sizes).contiguous();
}

/// Rows of Z, where the gradient is (Z V^T + V Z^T) / 2.
Tensor symmetric_factor(const Solved& solved, const Tensor& grad_values,
                        const Tensor& grad_vectors) {
  const Found& found = solved.found;
  const Tensor& v = found.right;
  const std::int64_t k = v.size(-2);
  const auto padded = [](const Tensor& x, at::IntArrayRef sides) {
    return x.defined() ? Optional<Tensor>(at::constant_pad_nd(x, sides)) : Optional<Tensor>();
  };
  // The last value, which has no gradient, is there for the rules that measure by the largest.
  const Tensor values = at::cat({found.values, found.largest.unsqueeze(-1)}, -1);
  const Tensor inner = grad_vectors.defined() ? thin_product(v, grad_vectors, false) : Tensor();
  const Tensor core = eigh_backward(padded(grad_values, {0, 1}), padded(inner, {0, 1, 0, 1}),
                                    values, unit_matrices(v, k + 1), solved.rule)
                          .narrow(-2, 0, k)
                          .narrow(-1, 0, k);
  const Tensor result = at::matmul(core.mT(), v);
  return grad_vectors.defined() ? result + solve_outside(solved, {}, grad_vectors).second : result;
}

/// Rows of X and Y, where the gradient is X V^T + U Y^T.
std::pair<Tensor, Tensor> factors(const Solved& solved, const Tensor& grad_left,
                                  const Tensor& grad_values, const Tensor& grad_right) {
  const Found& found = solved.found;
  const Tensor unit = unit_matrices(found.left, found.left.size(-2));
  const auto inside = [](const Tensor& x, const Tensor& y) {
    return y.defined() && x.defined() ? Optional<Tensor>(thin_product(x, y, false))
                                      : Optional<Tensor>();
  };
  const Tensor core =
      svd_backward(inside(found.left, grad_left), if_defined(grad_values),
                   inside(grad_right, found.right), unit, found.values, unit, solved.rule);
  const Tensor result = at::matmul(core.mT(), found.left);
  if (!grad_left.defined() && !grad_right.defined()) return {result, at::zeros_like(found.right)};
  const auto [x, y] = solve_outside(solved, grad_left, grad_right);
  return {result + x, y};
}

/// first^T second on the entries that the matrix has.
Tensor product_like(const Tensor& matrix, const Tensor& first, const Tensor& second) {
  if (matrix.layout() == at::kStrided) return at::matmul(first.mT(), second);
  const Pattern entries = pattern_of(matrix.detach());
  Tensor made = at::zeros(entries.values.sizes(), first.options());
  for (std::int64_t i = 0; i < first.size(0); ++i)  // one by one, for the memory's sake
    made.addcmul_(first[i].index_select(0, entries.rows),
                  second[i].index_select(0, entries.columns));
  made = made.to(entries.values.scalar_type());
  if (matrix.layout() == at::kSparse)
    return at::sparse_coo_tensor(at::stack({entries.rows, entries.columns}), made, matrix.sizes());
  return at::sparse_csr_tensor(matrix.crow_indices(), matrix.col_indices(), made, matrix.sizes(),
                               made.options().layout(at::kSparseCsr));
}

/// The entry of largest magnitude of each left vector is positive. Values are ascending if symmetric, as keel::eigh's, and
/// otherwise descending, also where they are nothing but rounding errors.
Found arranged(Found found, bool symmetric) {
  const Tensor order = std::get<1>(found.values.sort(/*stable=*/true, -1, !symmetric));
  found.values = found.values.gather(-1, order);
  for (Tensor* const side : {&found.left, &found.right})
    *side = side->gather(-2, order.unsqueeze(-1).expand_as(*side));
  const Tensor place = found.left.abs().argmax(-1, true);
  const Tensor negative = found.left.gather(-1, place) < 0;
  const Tensor sign =
      at::ones({}, found.left.options()) - 2 * negative.to(found.left.scalar_type());
  found.left = found.left * sign;
  found.right = symmetric ? found.left : found.right * sign;
  return found;
}

void check_reached(const std::string& operation, const Tensor& residual, double tolerance,
                   std::int64_t steps) {
  const Tensor missed = (residual > 2 * tolerance).flatten();
  if (!missed.any().item<bool>()) return;
  const std::int64_t first = missed.nonzero()[0].item<std::int64_t>();
  std::ostringstream text;
  text.precision(1);
  text << std::scientific << operation << ": expected a residual";
  if (residual.dim()) text << " of matrix " << first;
  text << " of at most " << tolerance << " of the largest value within " << steps << " steps, got "
       << residual.flatten()[first].item<double>()
       << "; give more steps (maxiter), ask for less (tol), or have the residual returned";
  if (operation == "keel::eigsh") text << ". Is the matrix symmetric?";
  TORCH_CHECK(false, text.str());
}

struct Result {
  Tensor values, left, right, residual, gap;  ///< left and right as columns
};

Result partial(const Source& source, std::int64_t k, const PartialOptions& options) {
  const bool symmetric = source.operation == "keel::eigsh";
  const char* const operation = source.operation.c_str();
  auto solved = std::make_shared<Solved>();
  solved->operation = source.operation;
  solved->rule = to_string(options.rule);
  solved->map = map_of(source, symmetric);
  const Map& map = solved->map;
  const std::int64_t least = std::min(map.m, map.n);
  const std::string shape = shape_text(map.sizes({map.m, map.n}));
  TORCH_CHECK_VALUE(!symmetric || map.m == map.n, operation, ": expected (..., n, n), got ", shape);
  TORCH_CHECK_VALUE(k >= 1 && k <= least, operation, ": expected 1 <= k <= ", least, " for ", shape,
                    ", got ", k);
  Wanted wanted{
      k, symmetric ? options.which : "LA", 0, options.steps, options.maxiter, {}, options.seed};
  TORCH_CHECK_VALUE(wanted.which == "LA" || wanted.which == "SA" || wanted.which == "LM", operation,
                    ": expected which to be \"LA\", \"SA\" or \"LM\", got \"", wanted.which, '"');
  wanted.tolerance = std::max(options.tol, least_tolerance(map, k));
  if (options.start.defined()) {
    const Tensor& start = options.start;
    TORCH_CHECK_VALUE(
        start.dim() >= 2 && start.size(symmetric ? -2 : -1) == map.n && !start.is_complex(),
        operation, ": expected a start of real vectors ",
        symmetric ? "(..., n, any)" : "(..., any, n)", " with n = ", map.n, ", got ",
        shape_of(start), " of ", name_of(start.scalar_type()));
    const Tensor rows = symmetric ? start.mT() : start;
    wanted.start = rows.detach().to(map.options);
  }
  std::vector<Tensor> sources;
  Found& found = solved->found;
  Tensor residual, gap;
  {
    const at::NoGradGuard no_grad;
    const WithoutAutocast in_its_type;
    const at::NoTF32Guard exactly;
    found = arranged(leading(map, wanted), symmetric);
    solved->sign = at::ones_like(found.values);
    if (symmetric && wanted.which != "LA")
      solved->sign = wanted.which == "SA"
                         ? -solved->sign
                         : at::where(found.values < 0, -solved->sign, solved->sign);
    solved->sign = solved->sign.unsqueeze(-1);
  }
  // An operator's own tensors get their gradients through these products.
  std::vector<Tensor> products;
  {
    const at::AutoGradMode grad(source.given != nullptr && at::GradMode::is_enabled());
    const WithoutAutocast in_its_type;
    const at::NoTF32Guard exactly;
    products.push_back(map.times(found.right));
    if (!symmetric) products.push_back(map.adjoint(found.left));
  }
  sources = source.given ? products : std::vector<Tensor>{source.matrix};
  {
    const at::NoGradGuard no_grad;
    const Tensor values = found.values.unsqueeze(-1);
    const auto error = [&](const Tensor& image, const Tensor& side) {
      return at::linalg_vector_norm(
                 (image.detach() - side * values) / found.largest.unsqueeze(-1).unsqueeze(-1), 2,
                 {-1})
          .amax(-1);
    };
    residual = error(products[0], found.left);
    if (!symmetric) residual = at::maximum(residual, error(products[1], found.right));
    residual = at::where(found.largest > 0, residual, found.largest);
    gap = found.more_values.size(-1)
              ? (found.values.unsqueeze(-1) - found.more_values.unsqueeze(-2)).abs().amin({-2, -1})
              : at::full_like(residual, std::numeric_limits<double>::infinity());
    if (options.steps == 0 && !options.report)
      check_reached(source.operation, residual, wanted.tolerance, options.maxiter);
  }
  const auto type = sources[0].scalar_type();
  const auto columns = [&](const Tensor& rows) { return rows.mT().to(type, false, /*copy=*/true); };
  Result result{
      found.values.to(type, false, /*copy=*/true), columns(found.left), {}, residual, gap};
  if (!symmetric) result.right = found.right.to(type, false, /*copy=*/true);
  variable_list outputs{result.values, result.left};
  if (!symmetric) outputs.push_back(result.right);
  const bool is_matrix = source.given == nullptr;
  record({.name = operation,
          .inputs = sources,
          .outputs = outputs,
          .saved = sources,  // an error if one of them is changed before backward
          .backward = [solved, is_matrix, type](const GraphNode::Pass& pass) -> variable_list {
            variable_list made;
            {
              const at::NoGradGuard no_grad;
              const WithoutAutocast in_its_type;
              const at::NoTF32Guard exactly;
              const Found& found = solved->found;
              const auto given = [&](std::size_t i, bool turned) {
                const Tensor g = in_compute_type(pass.grads[i]);
                return g.defined() && turned ? g.mT() : g;
              };
              if (solved->map.symmetric) {
                const Tensor z = symmetric_factor(*solved, given(0, false), given(1, true));
                made = is_matrix ? variable_list{product_like(pass.saved[0],
                                                              at::cat({z / 2, found.left}, -2),
                                                              at::cat({found.left, z / 2}, -2))}
                                 : variable_list{z};
              } else {
                const auto [x, y] =
                    factors(*solved, given(1, true), given(0, false), given(2, false));
                made = is_matrix
                           ? variable_list{product_like(pass.saved[0], at::cat({x, found.left}, -2),
                                                        at::cat({found.right, y}, -2))}
                           : variable_list{x, y};
              }
              for (Tensor& gradient : made) gradient = gradient.to(type);
            }
            if (at::GradMode::is_enabled()) {
              variable_list depends = pass.saved;
              for (const Tensor& g : pass.grads)
                if (g.defined()) depends.push_back(g);
              record_without_derivative(
                  solved->operation +
                      ": expected one derivative, got a second one; keel::eigh and "
                      "keel::svd, of all values, have second derivatives",
                  depends, made);
            }
            return made;
          },
          .forward = [operation = source.operation]() -> variable_list {
            TORCH_CHECK(false, operation, ": expected reverse mode, got forward mode");
          }});
  return result;
}

/// A product by an operator of Python's, which implements it.
constexpr Operator<"linear_product", Tensor(std::int64_t map, const Tensor& x, bool adjoint)>
    linear_product;

/// For Python: `matrix` is the matrix, or an empty tensor of an operator's type and device, whose number is `map`.
Tensors<5> partial_operator(const Tensor& matrix, std::int64_t map, at::IntArrayRef shape,
                            std::int64_t k, StringView which, double tol, std::int64_t steps,
                            std::int64_t maxiter, const Optional<Tensor>& start, std::int64_t seed,
                            StringView rule, bool report) {
  const bool symmetric = which.size() != 0;
  Source source{symmetric ? "keel::eigsh" : "keel::svds", matrix};
  LinearOperator given;
  if (map != 0) {
    given = {shape.vec(), [map](const Tensor& x) { return linear_product(map, x, false); },
             [map](const Tensor& x) { return linear_product(map, x, true); }, matrix.options()};
    source.given = &given;
  }
  const PartialOptions options{symmetric ? text(which) : "LA",
                               tol,
                               steps,
                               maxiter,
                               or_undefined(start),
                               seed,
                               parsed(gradient_rule, source.operation.c_str(), rule),
                               report};
  const Result found = partial(source, k, options);
  return {found.values, found.left, symmetric ? found.left : found.right, found.residual,
          found.gap};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(keel, m) {
  m.def("linear_product(int map, Tensor x, bool adjoint) -> Tensor");
  m.def(
      "partial(Tensor matrix, int map, int[] shape, int k, str which, float tol, int steps, int "
      "maxiter,"
      " Tensor? start, int seed, str rule, bool report) -> (Tensor values, Tensor left, Tensor "
      "right,"
      " Tensor residual, Tensor gap)",
      &partial_operator);
}

}  // namespace keel::ops

namespace keel {
namespace {

PartialEigh eigsh_of(const ops::Source& source, std::int64_t k, const PartialOptions& options) {
  auto [values, left, right, residual, gap] = ops::partial(source, k, options);
  return {std::move(values), std::move(left), std::move(residual), std::move(gap)};
}

PartialSvd svds_of(const ops::Source& source, std::int64_t k, const PartialOptions& options) {
  auto [values, left, right, residual, gap] = ops::partial(source, k, options);
  return {std::move(left), std::move(values), std::move(right), std::move(residual),
          std::move(gap)};
}

}  // namespace

PartialEigh eigsh(const torch::Tensor& matrix, std::int64_t k, const PartialOptions& options) {
  return eigsh_of({"keel::eigsh", matrix}, k, options);
}
PartialEigh eigsh(const LinearOperator& map, std::int64_t k, const PartialOptions& options) {
  return eigsh_of({"keel::eigsh", {}, &map}, k, options);
}
PartialSvd svds(const torch::Tensor& matrix, std::int64_t k, const PartialOptions& options) {
  return svds_of({"keel::svds", matrix}, k, options);
}
PartialSvd svds(const LinearOperator& map, std::int64_t k, const PartialOptions& options) {
  return svds_of({"keel::svds", {}, &map}, k, options);
}

}  // namespace keel
