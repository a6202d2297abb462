// Forward of a whitening layer's training step: in one process, or from sums that several processes added up.

#include "ops/whiten_state.h"

#include "autograd.h"
#include "check.h"
#include "device.h"
#include "keel/moments.h"
#include "ops/operators.h"

namespace keel::ops {
namespace {

constexpr const char *kWhiten = "keel::whiten", *kWhitenApply = "keel::whiten_apply";
constexpr char kNotThroughApply[] = "keel::whiten_apply: no derivative; whiten_forward has one";

void check_layer(const char* operation, const Tensor& input, const Optional<Tensor>& weight,
                 const Optional<Tensor>& bias, std::int64_t groups,
                 const Optional<Tensor>& residual) {
  check_activations(operation, "input", input, groups);
  check_channels(operation, "weight", or_undefined(weight), input);
  check_channels(operation, "bias", or_undefined(bias), input);
  check_like(operation, "residual", or_undefined(residual), input);
}

void check_whiten(const Tensor& input, const Optional<Tensor>& weight, const Optional<Tensor>& bias,
                  std::int64_t groups, const Optional<Tensor>& residual) {
  check_layer(kWhiten, input, weight, bias, groups, residual);
  TORCH_CHECK_VALUE(samples_of(input) > 1, kWhiten,
                    ": expected more than 1 value per channel when training, got input size ",
                    shape_of(input));
}

LayerMap map_under(const char* operation, StringView map, StringView rule) {
  parsed(spectral_rule, operation, rule);  // report a bad rule now, not in backward
  return parsed(layer_map, operation, map);
}

/// Allocates the results and runs `call(where, input, weight, bias, state, output)` on the core's views.
template <typename Call>
Tensors<7> results(const Tensor& input, const Optional<Tensor>& weight,
                   const Optional<Tensor>& bias, std::int64_t groups, bool relu,
                   const Optional<Tensor>& residual, const Call& call) {
  const Order order = order_of(input);
  const StateTensors found = StateTensors::empty(input, groups);
  Tensor output;
  if (input.is_meta()) {
    output = empty_activations(input, order);
  } else {
    const Tensor x = in_order(input, order), w = channel_statistics(weight, input),
                 b = channel_statistics(bias, input), r = in_order_if_any(residual, order);
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), kWhiten, [&] {
      using T = CoreType<scalar_t>;
      using A = Accumulator<T>;
      const auto in = activations<const T>(x, groups, order);
      const auto out = made_on_demand<T>(output, input, groups, order, relu, r);
      on_device_of(x, call, in, data_or_null<const A>(w), data_or_null<const A>(b), found.view<A>(),
                   out);
    });
  }
  return {output,       found.mean,    found.covariance, found.layer_matrix,
          found.values, found.vectors, found.rank};
}

Tensors<7> whiten_forward_kernel(const Tensor& input, const Optional<Tensor>& weight,
                                 const Optional<Tensor>& bias, std::int64_t groups, StringView map,
                                 StringView rule, bool relu, const Optional<Tensor>& residual) {
  check_whiten(input, weight, bias, groups, residual);
  const LayerMap chosen = map_under(kWhiten, map, rule);
  return results(input, weight, bias, groups, relu, residual,
                 [&](const auto& where, const auto& x, const auto&... rest) {
                   KEEL_STAGE(whiten)(where, chosen, x, rest...);
                 });
}

Tensors<7> whiten_apply_kernel(const Tensor& input, const Optional<Tensor>& weight,
                               const Optional<Tensor>& bias, std::int64_t groups,
                               const Tensor& sums, const Optional<Tensor>& shift, StringView map,
                               StringView rule, bool relu, const Optional<Tensor>& residual) {
  check_layer(kWhitenApply, input, weight, bias, groups, residual);
  const auto channels = input.sym_size(1), numbers = channels * (channels / groups) + channels + 1;
  TORCH_CHECK(sums.dim() == 1 && sums.sym_size(0) == numbers && sums.scalar_type() == at::kDouble,
              kWhitenApply, ": expected sums (", numbers, ") of type float64, got ", shape_of(sums),
              " of type ", name_of(sums.scalar_type()));
  check_place(kWhitenApply, "sums", sums, input);
  check_channels(kWhitenApply, "shift", or_undefined(shift), input);
  const LayerMap chosen = map_under(kWhitenApply, map, rule);
  const Tensor total = sums.contiguous(), about = as_shift(shift);
  return results(input, weight, bias, groups, relu, residual,
                 [&](const auto& where, const auto& x, const auto&... rest) {
                   KEEL_STAGE(whiten_apply)
                   (where, chosen, x, total.template data_ptr<double>(),
                    data_or_null<const double>(about), rest...);
                 });
}

/// The step as separate stages, which have tangents.
Tensors<7> in_stages(const Tensor& input, const Tensor& weight, const Tensor& bias,
                     std::int64_t groups, StringView map, StringView rule, bool relu,
                     const Tensor& residual) {
  const auto [mean, covariance] = moments(input, groups);
  const auto [matrix, values, vectors, rank] = layer_matrix(covariance, map, rule);
  const Tensor scaled = weight.defined() ? weight.reshape({groups, -1, 1}) * matrix : matrix;
  return {affine(input, scaled, mean, if_defined(bias), relu, if_defined(residual)),
          mean,
          covariance,
          matrix,
          values,
          vectors,
          rank};
}

Tensors<7> whiten_forward_autograd(const Tensor& input, const Optional<Tensor>& weight,
                                   const Optional<Tensor>& bias, std::int64_t groups,
                                   StringView map, StringView rule, bool relu,
                                   const Optional<Tensor>& residual) {
  check_whiten(input, weight, bias, groups, residual);
  // Convert outside the node, so that autograd returns each gradient in its parameter's type.
  const Tensor w = in_statistics_type(or_undefined(weight), input),
               b = in_statistics_type(or_undefined(bias), input), r = or_undefined(residual);
  if (has_tangent(variable_list{input, w, b, r}))
    return in_stages(input, w, b, groups, map, rule, relu, r);
  const Tensors<7> results = whiten_forward.below_autograd(input, if_defined(w), if_defined(b),
                                                           groups, map, rule, relu, residual);
  if (!needs_backward(variable_list{input, w, b, r})) return results;
  const auto& [output, mean, covariance, matrix, values, vectors, rank] = results;
  record({.name = kWhiten,
          .inputs = {input, w, b, r},
          .outputs = {output},
          // The input, O(C d) numbers, and with ReLU the output, which the next layer saves anyway.
          .saved = {input, w, mean, covariance, matrix, values, vectors, rank,
                    relu ? output : Tensor()},
          .backward = [has_bias = b.defined(), m = text(map),
                       r = text(rule)](const GraphNode::Pass& pass) -> variable_list {
            const variable_list& s = pass.saved;
            Tensor grad = pass.grads[0], gate = s[8].defined() ? s[8].detach() : s[8],
                   grad_residual;
            if (pass.wanted(3)) {  // the residual's gradient is already masked by ReLU
              if (gate.defined()) grad = relu_mask(grad, gate);
              grad_residual = grad;
              gate = Tensor();
            }
            // The residual's gradient alone bypasses the layer. It has derivatives that the layer may lack.
            if (!pass.wanted(0) && !pass.wanted(1) && !pass.wanted(2))
              return {{}, {}, {}, grad_residual};
            auto [grad_input, grad_weight, grad_bias] =
                whiten_backward(grad, s[0], if_defined(s[1]), s[2], s[3], s[4], s[5], s[6], s[7], m,
                                r, if_defined(gate));
            return {grad_input, s[1].defined() ? grad_weight : Tensor(),
                    has_bias ? grad_bias : Tensor(), grad_residual};
          },
          .forward = {}});
  return results;
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(keel, m) {
  m.def(
      "whiten_forward(Tensor input, Tensor? weight, Tensor? bias, int groups, str map,"
      " str rule='exact', bool relu=False, Tensor? residual=None)"
      " -> (Tensor output, Tensor mean, Tensor covariance, Tensor layer_matrix, Tensor values,"
      " Tensor vectors, Tensor rank)");
  m.def(
      "whiten_apply(Tensor input, Tensor? weight, Tensor? bias, int groups, Tensor sums,"
      " Tensor? shift, str map, str rule='exact', bool relu=False, Tensor? residual=None)"
      " -> (Tensor output, Tensor mean, Tensor covariance, Tensor layer_matrix, Tensor values,"
      " Tensor vectors, Tensor rank)");
}
KEEL_OPERATOR("whiten_forward", &whiten_forward_kernel, &whiten_forward_autograd)
KEEL_OPERATOR("whiten_apply", &whiten_apply_kernel,
              without_derivative<whiten_apply, kNotThroughApply>)

}  // namespace keel::ops

namespace keel {

Whitened whiten(const torch::Tensor& input, const torch::Tensor& weight, const torch::Tensor& bias,
                std::int64_t groups, const LayerMap& map, const SpectralRule& rule, bool relu,
                const torch::Tensor& residual) {
  ops::check_activations(ops::kWhiten, "input", input, groups);
  auto [output, mean, covariance, layer_matrix, values, vectors, rank] =
      ops::whiten_forward(input, ops::if_defined(weight), ops::if_defined(bias), groups,
                          to_string(map), to_string(rule), relu, ops::if_defined(residual));
  return {output, mean, covariance, layer_matrix, values, rank};
}

}  // namespace keel
