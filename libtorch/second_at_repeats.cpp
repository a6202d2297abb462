#include "second_at_repeats.h"

#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <cmath>
#include <functional>
#include <set>
#include <utility>

#include "autograd.h"
#include "device.h"
#include "gradient_rule_formula.h"
#include "ops/operators.h"

namespace keel::ops {
namespace {

/// The tensors of a backward pass. Values, vectors and gradients are part of the loss's graph.
struct BackwardPass {
  Tensor values, vectors;          ///< (..., n) and (..., n, n)
  Tensor dL_dvalues, dL_dvectors;  ///< of the loss; either may be undefined
  Tensor masked;                   ///< the pairs left out
  Tensor largest;                  ///< largest |l|, (...)
  Tensor unit;                     ///< the same, 1 for a zero matrix
};

/// The vector-Jacobian product: gradients of <weights, output> with respect to `inputs`, undefined for unused inputs.
variable_list vjp(const Tensor& output, const Tensor& weights, const variable_list& inputs,
                  bool create_graph) {
  if (!output.defined() || !output.requires_grad()) return variable_list(inputs.size());
  return torch::autograd::grad({output}, inputs, {weights}, /*retain_graph=*/true, create_graph,
                               /*allow_unused=*/true);
}

/// Turns a derivative with respect to V into derivatives along rotations. Entry (i, j) is the one along
/// v_i -> v_i + t v_j, v_j -> v_j - conj(t) v_i; for complex t its conjugate.
Tensor by_rotations(const Tensor& vectors, const Tensor& by_vectors) {
  const Tensor z = vectors.mH().matmul(by_vectors);
  return z.mH() - z;
}

/// The largest |entry| of each matrix (dims = 2) or of each row of values (dims = 1), as (...).
Tensor size_of(const Tensor& tensor, std::int64_t dims) {
  return dims == 1 ? tensor.abs().amax(-1) : tensor.abs().amax({-2, -1});
}

/// Weights without a pattern, so that a weighted sum vanishes only if its terms do.
Tensor generic_weights(const Tensor& like) {
  const Tensor i = at::arange(like.size(-1), like.options().dtype(type_of_values(like)));
  const Tensor angles = 1 + i.unsqueeze(-1) + std::sqrt(2.0) * i;
  return like.is_complex() ? at::complex(angles.cos(), (std::sqrt(3.0) * angles).sin())
                           : angles.cos();
}

/// <weights, matrix>, a real number, as part of a graph.
Tensor product(const Tensor& weights, const Tensor& matrix) {
  return at::real((weights.conj() * matrix).sum());
}

/// A direction without a pattern for the eigenvalues. Two different numbers give independent directions.
Tensor generic_direction(const Tensor& values, double number) {
  const Tensor i = at::arange(values.size(-1), values.options());
  return (1 + (std::sqrt(number) * (1 + i)).frac()).expand_as(values);
}

/// Whether each matrix has any of these pairs, as (...).
Tensor any_pair(const Tensor& pairs) { return pairs.flatten(-2).any(-1); }

/// 0, 1, 2, ...
Tensor ramp(const Tensor& values) {
  return at::arange(values.size(-1), values.options()).expand_as(values);
}

/// x_i - x_j for all pairs.
Tensor differences(const Tensor& x) { return x.unsqueeze(-1) - x.unsqueeze(-2); }

/// |x_i| + |x_j| for all pairs.
Tensor magnitudes(const Tensor& x) { return x.abs().unsqueeze(-1) + x.abs().unsqueeze(-2); }

/// How a number that vanishes for a valid loss is compared with zero: rounding, and the terms that cancel in it.
struct Tolerance {
  double epsilon, cancelled;

  explicit Tolerance(const Tensor& values)
      : epsilon(16 * double(values.size(-1)) * epsilon_of(values)),
        cancelled(std::sqrt(epsilon_of(values))) {}

  Tensor exceeded_by(const Tensor& number, const Tensor& made_of, const Tensor& rounded) const {
    return number > cancelled * made_of + epsilon * rounded;
  }
};

/// Whether the loss tells equal eigenvalues apart: h = dL/dl must be equal in a masked pair, and exchanging the pair must
/// leave dh/dl as it is. For all w, (H w)_i - (H w)_j is then one multiple of w_i - w_j.
Tensor tells_values_apart(const BackwardPass& seen) {
  const Tolerance tolerance(seen.values);
  const Tensor h = seen.dL_dvalues.detach();
  const Tensor d0 = generic_direction(seen.values, 2), d1 = generic_direction(seen.values, 3);
  const auto curved = [&](const Tensor& along) {
    const Tensor u = vjp(seen.dL_dvalues, along, {seen.values}, /*create_graph=*/false)[0];
    return u.defined() ? u : at::zeros_like(h);
  };
  const auto to_pairs = [](const Tensor& of_matrix) {
    return of_matrix.unsqueeze(-1).unsqueeze(-1);
  };
  const Tensor u0 = curved(d0), u1 = curved(d1), size = size_of(h, 1);
  const Tensor curvature = at::maximum(size_of(u0, 1), size_of(u1, 1));
  const Tensor slopes = tolerance.exceeded_by(differences(h).abs(), magnitudes(h),
                                              to_pairs(size + seen.unit * curvature));
  const Tensor curvatures = tolerance.exceeded_by(
      (differences(u0) * differences(d1) - differences(u1) * differences(d0)).abs(),
      magnitudes(u0) * differences(d1).abs() + magnitudes(u1) * differences(d0).abs(),
      to_pairs(curvature + size / seen.unit));
  return any_pair(slopes.logical_or(curvatures).logical_and(seen.masked));
}

/// The size of the derivatives of <weights, B>, B = V^T dL_dvectors, for each matrix, in units of B. `first` is along
/// rotations and eigenvalues. `second` and `third` are those of the one and the two along eigenvalues.
struct Slopes {
  Tensor first, second, third;
};

Slopes slopes_of(const BackwardPass& seen, const Tensor& b, const Tensor& weights) {
  const variable_list inputs = {seen.values, seen.vectors};
  const Tensor none = at::zeros_like(seen.largest);
  Slopes slopes{none, none, none};
  const auto grow = [&](Tensor& slope, const Tensor& by_values, const Tensor& by_vectors,
                        const Tensor& unit) {
    if (by_values.defined())
      slope = at::maximum(slope, unit * seen.unit * size_of(by_values.detach(), 1));
    if (by_vectors.defined())
      slope =
          at::maximum(slope, unit * size_of(by_rotations(seen.vectors, by_vectors).detach(), 2));
  };
  const variable_list first = vjp(b, weights, inputs, /*create_graph=*/true);
  grow(slopes.first, first[0], first[1], at::ones_like(seen.unit));
  if (!first[0].defined()) return slopes;
  const variable_list second = vjp(first[0], generic_direction(seen.values, 2), inputs, true);
  grow(slopes.second, second[0], second[1], seen.unit);
  if (!second[0].defined()) return slopes;
  const variable_list third =
      vjp(second[0], generic_direction(seen.values, 3), {seen.vectors}, false);
  grow(slopes.third, Tensor(), third[0], seen.unit.square());
  return slopes;
}

/// Weights of the entries in masked pairs, and the same for the difference of an entry and its transpose.
struct PairWeights {
  Tensor inside, turned;

  explicit PairWeights(const BackwardPass& seen) {
    const Tensor mask = seen.masked.to(seen.values.scalar_type());
    inside = mask * generic_weights(seen.vectors).expand_as(seen.vectors);
    turned = inside - inside.mH();
  }
};

/// Whether the loss depends on the basis inside an eigenspace, now or as soon as the eigenvalues separate.
Tensor depends_on_basis(const BackwardPass& seen) {
  const Tolerance tolerance(seen.values);
  const Tensor b = seen.vectors.mH().matmul(seen.dL_dvectors), numbers = b.detach();
  const Tensor mask = seen.masked.to(seen.values.scalar_type());
  const PairWeights weights(seen);
  const Slopes turned = slopes_of(seen, b, weights.turned);
  const Slopes terms = slopes_of(seen, b, weights.inside);
  const Slopes scale = slopes_of(seen, b, generic_weights(b).expand_as(b));
  const Tensor first = size_of(numbers, 2) + scale.first, second = first + scale.second;
  return tolerance
      .exceeded_by(size_of(mask * (numbers - numbers.mH()), 2), size_of(mask * numbers, 2), first)
      .logical_or(tolerance.exceeded_by(turned.first, terms.first, first))
      .logical_or(tolerance.exceeded_by(turned.second, terms.second, second))
      .logical_or(tolerance.exceeded_by(turned.third, terms.third, second + scale.third));
}

// A loss may reach the matrix by other ways too: by itself, or by another decomposition. The numbers that vanish for a valid
// loss must then vanish whatever is there.

using torch::autograd::Edge;
using torch::autograd::Node;

/// Visits the nodes that `edges` lead to, each once. `enter` says whether to go on behind one.
void walk(const torch::autograd::edge_list& edges, const std::function<bool(const Edge&)>& enter) {
  std::set<std::pair<const Node*, std::uint32_t>> seen;
  std::set<const Node*> entered;
  torch::autograd::edge_list open = edges;
  while (!open.empty()) {
    const Edge edge = open.back();
    open.pop_back();
    if (!edge.is_valid() || !seen.emplace(edge.function.get(), edge.input_nr).second) continue;
    if (!enter(edge) || !entered.insert(edge.function.get()).second) continue;
    for (const Edge& next : edge.function->next_edges()) open.push_back(next);
  }
}

/// Whether the running backward pass goes through the node.
bool is_wanted(Node* node) {
  const auto* const task = torch::autograd::get_current_graph_task_exec_info();
  if (task == nullptr || task->empty()) return true;
  const auto found = task->find(node);
  return found != task->end() && found->second.should_execute();
}

bool is_decomposition(const Node& node) { return node.name() == "keel::eigh"; }

/// Where the gradients of the loss reach the matrix, or what it is made of, other than through this decomposition. Other
/// decompositions on the way are such places too.
torch::autograd::edge_list other_ways(const BackwardPass& seen) {
  const auto own = seen.values.grad_fn();
  if (!own) return {};
  torch::autograd::edge_list from, found;
  for (const Tensor& grad : {seen.dL_dvalues, seen.dL_dvectors})
    if (grad.defined() && grad.requires_grad())
      from.push_back(torch::autograd::impl::gradient_edge(grad));
  std::set<const Node*> behind;  // the matrix
  walk(own->next_edges(), [&](const Edge& edge) {
    behind.insert(edge.function.get());
    return true;
  });
  const auto leads_there = [&](const Edge& start) {
    bool leads = false;
    walk({start}, [&](const Edge& edge) {
      leads = leads || behind.count(edge.function.get()) != 0;
      return !leads;
    });
    return leads;
  };
  walk(from, [&](const Edge& edge) {
    if (edge.function.get() == own.get() || !is_wanted(edge.function.get())) return false;
    const bool ends = behind.count(edge.function.get()) != 0 ||
                      (is_decomposition(*edge.function) && leads_there(edge));
    if (ends) found.push_back(edge);
    return !ends;
  });
  return found;
}

/// Whether the loss tells equal eigenvalues or bases of their eigenspace apart as soon as the matrix moves what the loss
/// reaches by other ways. One answer for all matrices.
Tensor is_told_otherwise(const BackwardPass& seen) {
  const torch::autograd::edge_list ways = other_ways(seen);
  if (ways.empty()) return Tensor();
  const Tolerance tolerance(seen.values);
  const auto derivatives = [&](const Tensor& weights, const Tensor& of_values) {
    Tensor sum = at::zeros({}, seen.values.options());
    if (seen.dL_dvalues.defined())
      sum = sum + (seen.unit.unsqueeze(-1) * of_values * seen.dL_dvalues).sum();
    if (seen.dL_dvectors.defined()) {
      const Tensor b = seen.vectors.mH().matmul(seen.dL_dvectors);
      sum = sum + product(weights, b);
      const Tensor by_values = vjp(b, weights, {seen.values}, /*create_graph=*/true)[0];
      if (by_values.defined())
        sum = sum + (seen.unit.unsqueeze(-1) * generic_direction(seen.values, 2) * by_values).sum();
    }
    return sum;
  };
  const auto behind = [&](const Tensor& sum) {
    if (!sum.requires_grad()) return variable_list(ways.size());
    return torch::autograd::Engine::get_default_engine().execute(
        {torch::autograd::impl::gradient_edge(sum)}, {at::ones_like(sum)}, /*keep_graph=*/true,
        /*create_graph=*/false, /*accumulate_grad=*/false, ways);
  };
  // What comes through this decomposition does not count.
  const auto apart = [&](const Tensor& sum) {
    const variable_list own =
        vjp(sum, at::ones_like(sum), {seen.values, seen.vectors}, /*create_graph=*/false);
    Tensor through = at::zeros_like(sum);
    if (own[0].defined()) through = through + (own[0].detach() * seen.values).sum();
    if (own[1].defined()) through = through + (own[1].detach() * seen.vectors).sum();
    return std::pair{behind(sum), behind(through)};
  };
  const PairWeights weights(seen);
  const auto [turned, turned_own] =
      apart(derivatives(weights.turned, at::real(weights.turned).sum(-1)));
  const auto [terms, terms_own] = apart(derivatives(weights.inside, weights.inside.abs().sum(-1)));
  // Those of all pairs are the unit of rounding, since the masked ones may vanish one by one.
  const auto [scale, scale_own] = apart(derivatives(
      generic_weights(seen.vectors).expand_as(seen.vectors), generic_direction(seen.values, 3)));
  Tensor told;
  for (std::size_t i = 0; i < ways.size(); ++i) {
    if (!turned[i].defined()) continue;
    // Eigenvectors move by rotations only.
    const Tensor vectors = is_decomposition(*ways[i].function) && ways[i].input_nr == 1
                               ? static_cast<GraphNode&>(*ways[i].function).saved_tensor(1)
                               : Tensor();
    const auto largest = [&](const Tensor& derivative) {
      if (!derivative.defined()) return at::zeros({}, seen.values.options());
      const Tensor of_way = vectors.defined() ? by_rotations(vectors, derivative) : derivative;
      return of_way.detach().abs().max().to(seen.values.options());
    };
    const auto without = [](const Tensor& all, const Tensor& own) {
      return own.defined() && all.defined() ? all - own : all;
    };
    const Tensor bad = tolerance.exceeded_by(
        largest(without(turned[i], turned_own[i])), largest(without(terms[i], terms_own[i])),
        largest(turned[i]) + largest(turned_own[i]) + largest(scale[i]) + largest(scale_own[i]));
    told = told.defined() ? told.logical_or(bad) : bad;
  }
  return told;
}

/// Whether the masked rule cannot give the second derivative of a matrix's loss: the loss prefers one of two equal
/// eigenvalues or a basis of their eigenspace, now or as soon as the two separate.
Tensor has_no_second_derivative(const BackwardPass& seen) {
  Tensor refused = at::zeros_like(seen.largest, seen.largest.options().dtype(at::kBool));
  if (seen.dL_dvalues.defined()) refused = refused.logical_or(tells_values_apart(seen));
  if (seen.dL_dvectors.defined()) refused = refused.logical_or(depends_on_basis(seen));
  if (const Tensor told = is_told_otherwise(seen); told.defined())
    refused = refused.logical_or(told.logical_and(any_pair(seen.masked)));
  return refused;
}

/// The part of the second derivative <grad_grad_matrix, d dL_dmatrix> inside the masked pairs, in the matrix's basis.
/// Rotating the basis inside an eigenspace moves off-diagonal entries of a symmetric matrix onto the diagonal, and the
/// diagonal is known: it is the derivative with respect to the eigenvalues.
Tensor inside_masked_pairs(const BackwardPass& seen, const Tensor& dL_dmatrix,
                           const Tensor& grad_grad_matrix) {
  // The derivative of dL_dmatrix along eigenvalues that move by 0, 1, 2, ..., as the gradient of a linear function of
  // `any`. That way grad_grad_matrix, which vmap may batch, enters autograd only in the last step.
  const Tensor weights = ramp(seen.values);
  const Tensor any = at::zeros_like(dL_dmatrix).requires_grad_(true);
  const Tensor by_values = vjp(dL_dmatrix, any, {seen.values}, true)[0];
  const Tensor along = vjp(by_values, weights, {any}, true)[0];
  const Tensor by_vectors = vjp(along, grad_grad_matrix, {seen.vectors}, false)[0];
  if (!by_vectors.defined()) return Tensor();
  const at::NoGradGuard no_graph;
  const Tensor apart = weights.unsqueeze(-1) - weights.unsqueeze(-2);
  const Tensor turned = by_rotations(seen.vectors, by_vectors);
  const Tensor middle = at::where(
      seen.masked, divided(turned, 2 * at::where(seen.masked, apart, at::ones_like(apart))),
      at::zeros_like(turned));
  const Tensor inside = seen.vectors.matmul(middle).matmul(seen.vectors.mH());
  return (inside + inside.mH()) / 2;
}

/// The gradient of `tie`, or undefined if it is zero.
Tensor second_at_repeats(const Masked& rule, BackwardPass seen, const Tensor& grad_grad_matrix,
                         bool can_read) {
  if (seen.values.numel() == 0 || seen.values.is_meta()) return Tensor();
  const Tensor values = seen.values.detach();
  seen.masked = masked_pairs(rule, values);
  seen.largest = size_of(values, 1);
  seen.unit = at::where(seen.largest == 0, at::ones_like(seen.largest), seen.largest);
  if (can_read && !seen.masked.any().item<bool>()) return Tensor();
  const at::AutoGradMode with_graph(true);
  const WithoutAutocast in_its_type;
  const Tensor dL_dmatrix =
      gradient_rule_formula(rule, seen.values, seen.vectors, seen.dL_dvalues, seen.dL_dvectors);
  const auto nan_at = [&](const Tensor& which) {
    const Tensor poison =
        at::where(which, at::full_like(seen.largest, NAN), at::zeros_like(seen.largest));
    return poison.unsqueeze(-1).unsqueeze(-1).expand_as(seen.vectors);
  };
  // Once functorch has left a level, that level's tensors have no graph.
  if (!can_read && !dL_dmatrix.requires_grad()) return nan_at(any_pair(seen.masked));
  TORCH_CHECK(
      dL_dmatrix.requires_grad(),
      "keel::eigh: no second derivative at repeated eigenvalues by functorch.vjp, jacrev or "
      "hessian, which leave their layer before its backward pass; nest functorch.grad, or "
      "use torch.autograd.functional.hessian");
  const Tensor refused = has_no_second_derivative(seen);
  TORCH_CHECK(
      !can_read || !refused.any().item<bool>(), "keel::eigh: no second derivative under rule ",
      to_string(GradientRule(rule)),
      " at repeated eigenvalues of a loss that depends on the basis inside their eigenspace, tells "
      "equal eigenvalues apart, also by two decompositions of one matrix, or weighs eigenvectors "
      "by a function of their eigenvalues, as V f(l) V^T does; expected one "
      "that depends on the eigenspace only as a whole. keel::spectral and its named functions "
      "(sqrtm, inv_sqrtm, invm, logm, expm, powm) have exact second derivatives there");
  const Tensor inside = inside_masked_pairs(seen, dL_dmatrix, grad_grad_matrix);
  if (can_read) return inside;
  return plus(inside, nan_at(refused));
}

/// Whether each matrix has pairs that the rule leaves out, as (...).
Tensor has_repeats(const Masked& rule, const Tensor& values) {
  if (values.sym_numel() == 0)
    return at::zeros_like(values.sum(-1), values.options().dtype(at::kBool));
  return any_pair(masked_pairs(rule, values.detach()));
}

/// Records that `inside`, the second derivative at repeated eigenvalues, cannot be differentiated again. A third
/// derivative is an error, or NaN if the values cannot be read.
void record_no_third_derivative(const Tensor& inside, const variable_list& made_of,
                                const Masked& rule, bool can_read) {
  if (can_read)
    return record_without_derivative(
        "keel::eigh: no third derivative under rule masked at repeated eigenvalues", made_of,
        {inside});
  const auto poison = [rule](const Tensor& derivative, const Tensor& values) {
    return nan_where(has_repeats(rule, values), at::zeros_like(derivative));
  };
  record({.name = "keel::end_of_derivatives",
          .inputs = made_of,
          .outputs = {inside},
          .saved = {made_of[1]},
          .backward = [poison](const GraphNode::Pass& pass) -> variable_list {
            const Tensor by_matrices = poison(pass.grads[0], pass.saved[0]);
            return {by_matrices, by_matrices.sum(-1), by_matrices};
          },
          .forward = [&] { return variable_list{poison(inside, made_of[1])}; }});
}

/// The gradients of dL_dmatrix and of `tie`.
variable_list second_pass(const GraphNode::Pass& pass, const Masked& rule) {
  const Tensor &grad = pass.grads[0], &values = pass.saved[0], &vectors = pass.saved[1];
  const bool can_read = can_read_values(values);
  Tensor inside = second_at_repeats(
      rule, {values, vectors, pass.saved[2], pass.saved[3], {}, {}, {}}, grad, can_read);
  if (inside.defined() && needs_graph({grad, values, vectors})) {
    inside = inside.detach();
    record_no_third_derivative(inside, {grad, values, vectors}, rule, can_read);
  }
  return {grad, inside};
}

std::string no_second_in_forward_mode(const Masked& rule) {
  return "keel::eigh: no second derivative in forward mode under rule " +
         to_string(GradientRule(rule)) +
         " at repeated eigenvalues; nest torch.func.grad or use two backward passes, which "
         "have it for a loss that depends on an eigenspace only as a whole";
}

Tensor with_second_at_repeats_kernel(const Tensor& dL_dmatrix, const Tensor&, const Tensor&,
                                     const Tensor&, const Optional<Tensor>&,
                                     const Optional<Tensor>&, StringView) {
  return dL_dmatrix.clone();
}

Tensor with_second_at_repeats_autograd(const Tensor& dL_dmatrix, const Tensor& tie,
                                       const Tensor& values, const Tensor& vectors,
                                       const Optional<Tensor>& dL_dvalues,
                                       const Optional<Tensor>& dL_dvectors, StringView rule) {
  const Tensor result = with_second_at_repeats.below_autograd(dL_dmatrix, tie, values, vectors,
                                                              dL_dvalues, dL_dvectors, rule);
  if (!needs_graph({dL_dmatrix})) return result;
  const Masked masked = std::get<Masked>(gradient_rule(text(rule)));
  record({.name = "keel::with_second_at_repeats",
          .inputs = {dL_dmatrix, tie},
          .outputs = {result},
          .saved = {values, vectors, or_undefined(dL_dvalues), or_undefined(dL_dvectors)},
          .backward = [masked](const GraphNode::Pass& pass) { return second_pass(pass, masked); },
          .forward = [&]() -> variable_list {
            return {unless_where(tangent_of(dL_dmatrix), has_repeats(masked, values),
                                 no_second_in_forward_mode(masked))};
          }});
  return result;
}

}  // namespace

Tensor once_at_repeats(const Masked& rule, const Tensor& tangent, const Tensor& values) {
  return without_derivative_where(tangent, has_repeats(rule, values),
                                  no_second_in_forward_mode(rule));
}

// Registered as an operator, so that each level of nested transforms records its own node.
TORCH_LIBRARY_FRAGMENT(keel, m) {
  m.def(
      "with_second_at_repeats(Tensor grad_matrix, Tensor tie, Tensor values, Tensor vectors,"
      " Tensor? grad_values, Tensor? grad_vectors, str rule) -> Tensor");
}
KEEL_OPERATOR("with_second_at_repeats", &with_second_at_repeats_kernel,
              &with_second_at_repeats_autograd)

}  // namespace keel::ops
