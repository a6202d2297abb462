// Backward of a whitening layer's training step: in one process, or in two halves between which several processes add up
// their sums.

#include "autograd.h"
#include "check.h"
#include "device.h"
#include "ops/operators.h"
#include "ops/whiten_state.h"

namespace keel::ops {
namespace {

constexpr const char *kWhitenBackward = "keel::whiten_backward",
                     *kBackwardSums = "keel::whiten_backward_sums",
                     *kBackwardApply = "keel::whiten_backward_apply";
constexpr char kNoSecond[] =
    "keel::whiten: no second derivative of this map under this rule; zca with rank full and rule "
    "exact has one";
constexpr char kNoSecondOverProcesses[] =
    "keel::whiten: no second derivative of a layer over several processes";

/// The arguments that all three operators share, checked and readable by the core.
struct BackwardStep {
  std::int64_t groups;
  Order order;
  Tensor grad_output, input, weight, output;
  StateTensors state;

  BackwardStep(const char* op, const Tensor& grad, const Tensor& x, const Optional<Tensor>& w,
               const StateTensors& given, const Optional<Tensor>& y) {
    check_group_matrices(op, "covariance", given.covariance, x);
    groups = given.covariance.sym_size(0).guard_int(__FILE__, __LINE__);
    check_activations(op, "input", x, groups);
    check_like(op, "grad_output", grad, x);
    check_like(op, "output", or_undefined(y), x);
    check_channels(op, "weight", or_undefined(w), x);
    check_channels(op, "mean", given.mean, x);
    check_statistics(op, "mean", given.mean, given.covariance);
    check_like(op, "layer_matrix", given.layer_matrix, given.covariance);
    check_like(op, "vectors", given.vectors, given.covariance);
    check_values(op, "values", given.values, given.vectors);
    check_rank(op, given.rank, given.vectors);
    order = order_of(x);
    input = in_order(x, order);
    grad_output = in_order(grad, order);
    output = in_order_if_any(y, order);
    weight = channel_statistics(w, x);
    state = {given.mean.contiguous(),   readable(given.covariance), readable(given.layer_matrix),
             given.values.contiguous(), readable(given.vectors),    given.rank.contiguous()};
  }

  /// Runs `call(where, grad_output, input, state)` on the core's views.
  template <typename Call>
  void run(const Call& call) const {
    AT_DISPATCH_FLOATING_TYPES_AND2(
        at::kHalf, at::kBFloat16, input.scalar_type(), kWhitenBackward, [&] {
          using T = CoreType<scalar_t>;
          on_device_of(input, call,
                       activations<const T>(grad_output, groups, order).gated(core_data<T>(output)),
                       activations<const T>(input, groups, order),
                       state.view<const Accumulator<T>>());
        });
  }
};

Tensors<3> whiten_backward_kernel(const Tensor& grad_output, const Tensor& input,
                                  const Optional<Tensor>& weight, const Tensor& mean,
                                  const Tensor& covariance, const Tensor& layer_matrix,
                                  const Tensor& values, const Tensor& vectors, const Tensor& rank,
                                  StringView map, StringView rule, const Optional<Tensor>& output) {
  const BackwardStep step(kWhitenBackward, grad_output, input, weight,
                          {mean, covariance, layer_matrix, values, vectors, rank}, output);
  const LayerMap chosen = parsed(layer_map, kWhitenBackward, map);
  const SpectralRule by = parsed(spectral_rule, kWhitenBackward, rule);
  const Tensor grad_weight = empty_channels(input), grad_bias = empty_channels(input);
  Tensor grad_input;
  if (input.is_meta())
    grad_input = empty_activations(input, step.order);
  else
    step.run([&]<typename T>(const auto& where, const Activations<const T>& grad,
                             const Activations<const T>& x, const auto& state) {
      using A = Accumulator<T>;
      KEEL_STAGE(whiten_backward<T>)
      (where, chosen, by, grad, x, data_or_null<const A>(step.weight), state,
       made_on_demand<T>(grad_input, input, step.groups, step.order), grad_weight.data_ptr<A>(),
       grad_bias.data_ptr<A>());
    });
  return {grad_input, grad_weight, grad_bias};
}

Tensors<3> whiten_backward_sums_kernel(const Tensor& grad_output, const Tensor& input,
                                       const Tensor& mean, const Tensor& covariance,
                                       const Tensor& layer_matrix, const Tensor& values,
                                       const Tensor& vectors, const Tensor& rank,
                                       const Optional<Tensor>& output) {
  const BackwardStep step(kBackwardSums, grad_output, input, {},
                          {mean, covariance, layer_matrix, values, vectors, rank}, output);
  const Tensor sums =
      mean.new_empty_symint({mean.sym_numel() + covariance.sym_numel()}, mean.options());
  const Tensor grad_weight = empty_channels(input), grad_bias = empty_channels(input);
  if (!input.is_meta())
    step.run([&]<typename T>(const auto& where, const Activations<const T>& grad,
                             const Activations<const T>& x, const auto& state) {
      using A = Accumulator<T>;
      KEEL_STAGE(whiten_backward_sums<T>)
      (where, grad, x, state, sums.data_ptr<A>(), grad_weight.data_ptr<A>(),
       grad_bias.data_ptr<A>());
    });
  return {sums, grad_weight, grad_bias};
}

Tensor whiten_backward_apply_kernel(const Tensor& grad_output, const Tensor& input,
                                    const Optional<Tensor>& weight, const Tensor& mean,
                                    const Tensor& covariance, const Tensor& layer_matrix,
                                    const Tensor& values, const Tensor& vectors, const Tensor& rank,
                                    const Tensor& sums, const Tensor& count, StringView map,
                                    StringView rule, const Optional<Tensor>& output) {
  const BackwardStep step(kBackwardApply, grad_output, input, weight,
                          {mean, covariance, layer_matrix, values, vectors, rank}, output);
  const LayerMap chosen = parsed(layer_map, kBackwardApply, map);
  const SpectralRule by = parsed(spectral_rule, kBackwardApply, rule);
  TORCH_CHECK(sums.dim() == 1 && sums.sym_size(0) == mean.sym_numel() + covariance.sym_numel(),
              kBackwardApply, ": expected sums (C + C d) for mean ", shape_of(mean),
              " and covariance ", shape_of(covariance), ", got ", shape_of(sums));
  check_statistics(kBackwardApply, "sums", sums, covariance);
  check_one_number(kBackwardApply, "count", count, at::kDouble, input);
  const Tensor total = sums.contiguous();
  Tensor grad_input;
  if (input.is_meta())
    grad_input = empty_activations(input, step.order);
  else
    step.run([&]<typename T>(const auto& where, const Activations<const T>& grad,
                             const Activations<const T>& x, const auto& state) {
      using A = Accumulator<T>;
      KEEL_STAGE(whiten_backward_apply<T>)
      (where, chosen, by, grad, x, data_or_null<const A>(step.weight), state, total.data_ptr<A>(),
       count.data_ptr<double>(), made_on_demand<T>(grad_input, input, step.groups, step.order));
    });
  return grad_input;
}

/// In stages that can be differentiated again.
Tensors<3> whiten_backward_in_stages(const Tensor& grad_output, const Tensor& input,
                                     const Tensor& weight, std::int64_t groups, StringView map,
                                     StringView rule) {
  const auto [mean, covariance] = moments(input, groups);
  const auto [matrix, values, vectors, rank] = layer_matrix(covariance, map, rule);
  const Tensor by_row = (weight.defined() ? weight : at::ones_like(mean)).reshape({groups, -1, 1});
  const auto [sum, cross] = cross_moments(grad_output, input, mean, groups);
  const Tensor scaled = by_row * matrix;
  const Tensor dL_dcovariance =
      layer_matrix_backward(by_row * cross, covariance, values, vectors, rank, map, rule);
  const double m = double(samples_of(input));
  const Tensor by_mean = -transposed_times(scaled, sum) / m;
  return {affine(grad_output, scaled.mT(), {}, {}) +
              affine(input, (dL_dcovariance + dL_dcovariance.mT()) / m, mean, by_mean),
          (cross * matrix).sum(-1).reshape({-1}), sum};
}

Tensors<3> whiten_backward_autograd(const Tensor& grad_output, const Tensor& input,
                                    const Optional<Tensor>& weight, const Tensor& mean,
                                    const Tensor& covariance, const Tensor& layer_matrix,
                                    const Tensor& values, const Tensor& vectors, const Tensor& rank,
                                    StringView map, StringView rule,
                                    const Optional<Tensor>& output) {
  const Tensor w = in_statistics_type(or_undefined(weight), input);
  if (needs_graph({grad_output, input, w}) && is_twice_differentiable(map, rule)) {
    const Tensor grad = output.has_value() && output->defined()
                            ? relu_mask(grad_output, output->detach())
                            : grad_output;
    return whiten_backward_in_stages(
        grad, input, w, covariance.sym_size(0).guard_int(__FILE__, __LINE__), map, rule);
  }
  return without_derivative<whiten_backward, kNoSecond>(grad_output, input, weight, mean,
                                                        covariance, layer_matrix, values, vectors,
                                                        rank, map, rule, output);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(keel, m) {
  m.def(
      "whiten_backward(Tensor grad_output, Tensor input, Tensor? weight, Tensor mean, Tensor "
      "covariance, Tensor layer_matrix, Tensor values, Tensor vectors, Tensor rank, str map, str "
      "rule='exact', Tensor? output=None) -> (Tensor grad_input, Tensor grad_weight, Tensor "
      "grad_bias)");
  m.def(
      "whiten_backward_sums(Tensor grad_output, Tensor input, Tensor mean, Tensor covariance,"
      " Tensor layer_matrix, Tensor values, Tensor vectors, Tensor rank, Tensor? output=None)"
      " -> (Tensor sums, Tensor grad_weight, Tensor grad_bias)");
  m.def(
      "whiten_backward_apply(Tensor grad_output, Tensor input, Tensor? weight, Tensor mean,"
      " Tensor covariance, Tensor layer_matrix, Tensor values, Tensor vectors, Tensor rank,"
      " Tensor sums, Tensor count, str map, str rule='exact', Tensor? output=None) -> Tensor");
}
KEEL_OPERATOR("whiten_backward", &whiten_backward_kernel, &whiten_backward_autograd)
KEEL_OPERATOR("whiten_backward_sums", &whiten_backward_sums_kernel,
              without_derivative<whiten_backward_sums, kNoSecondOverProcesses>)
KEEL_OPERATOR("whiten_backward_apply", &whiten_backward_apply_kernel,
              without_derivative<whiten_backward_apply, kNoSecondOverProcesses>)

}  // namespace keel::ops
