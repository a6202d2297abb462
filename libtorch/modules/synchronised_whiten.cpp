#include "modules/synchronised_whiten.h"

#include <torch/csrc/autograd/custom_function.h>

#include "activation_tensors.h"
#include "autograd.h"
#include "check.h"
#include "ops/operators.h"

namespace keel::nn {
namespace {

using ops::if_defined;
using ops::Optional;
using ops::variable_list;
using torch::Tensor;
using torch::autograd::AutogradContext;

/// The non-tensor state that backward needs.
struct Settings : torch::CustomClassHolder {
  std::int64_t groups;
  std::string map, rule;
  bool relu;
  ProcessGroup group;

  Settings(std::int64_t g, std::string m, std::string r, bool with_relu, ProcessGroup p)
      : groups(g), map(std::move(m)), rule(std::move(r)), relu(with_relu), group(std::move(p)) {}
};
using SharedSettings = c10::intrusive_ptr<Settings>;

/// Replaces a tensor by its sum over the processes. An error names the rank that noticed the failure.
void sum_over(const ProcessGroup& group, Tensor& tensor) {
  try {
    group.sum(tensor);
  } catch (const std::exception& error) {
    const auto* torchs = dynamic_cast<const c10::Error*>(&error);
    TORCH_CHECK(false, "keel::nn: the sum over ", group.size(), " processes failed in process ",
                group.process(), " (has another process stopped, or skipped this layer?): ",
                torchs != nullptr ? torchs->what_without_backtrace() : error.what());
  }
}

/// Checks that `count` (1), the number of samples in all processes, is enough for statistics. On a GPU this would stall
/// the host, so it is not checked there: no samples give NaN, and one sample gives zeros.
void check_samples(const ProcessGroup& group, const Tensor& count) {
  if (!count.is_cpu()) return;
  const double samples = count.item<double>();
  TORCH_CHECK_VALUE(samples > 1,
                    "keel::nn: expected more than 1 value per channel when training, got ",
                    std::int64_t(samples), " in ", group.size(), " processes");
}

/// The sum of all processes' partial moments, and the shift that was subtracted.
std::pair<Tensor, Tensor> moments_of_all(const Tensor& input, const Settings& set) {
  Tensor shift;
  if (input.scalar_type() == at::kDouble) {
    const std::int64_t channels = input.size(1);
    Tensor totals = ops::partial_moments(input, set.groups, {}).narrow(0, 0, 1 + channels).clone();
    sum_over(set.group, totals);
    shift = totals.narrow(0, 1, channels) / totals.narrow(0, 0, 1);
  }
  Tensor sums = ops::partial_moments(input, set.groups, if_defined(shift));
  sum_over(set.group, sums);
  check_samples(set.group, sums.narrow(0, 0, 1));
  return {sums, shift};
}

/// output, count, mean, covariance, layer_matrix, values, vectors, rank
variable_list step(const Tensor& input, const Optional<Tensor>& weight,
                   const Optional<Tensor>& bias, const Optional<Tensor>& residual,
                   const Settings& set) {
  const auto [sums, shift] = moments_of_all(input, set);
  auto [output, mean, covariance, layer_matrix, values, vectors, rank] =
      ops::whiten_apply(input, weight, bias, set.groups, sums, if_defined(shift), set.map, set.rule,
                        set.relu, residual);
  return {output, sums.narrow(0, 0, 1).clone(), mean, covariance, layer_matrix, values, vectors,
          rank};
}

struct SynchronisedWhitenNode : torch::autograd::Function<SynchronisedWhitenNode> {
  static variable_list forward(AutogradContext* ctx, const Tensor& input,
                               const Optional<Tensor>& weight, const Optional<Tensor>& bias,
                               const Optional<Tensor>& residual, const SharedSettings& set) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const variable_list out = step(input, weight, bias, residual, *set);
    ctx->set_materialize_grads(false);
    ctx->mark_non_differentiable(variable_list(out.begin() + 1, out.end()));
    ctx->saved_data["set"] = c10::IValue::make_capsule(set);
    ctx->saved_data["has_bias"] = ops::or_undefined(bias).defined();
    ctx->saved_data["has_residual"] = ops::or_undefined(residual).defined();
    ctx->saved_data["with_input"] = input.requires_grad();
    variable_list saved{input, ops::or_undefined(weight), set->relu ? out[0] : Tensor()};
    saved.insert(saved.end(), out.begin() + 1, out.end());
    ctx->save_for_backward(saved);
    return out;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const Tensor &input = saved[0], &weight = saved[1], &count = saved[3], &mean = saved[4],
                 &covariance = saved[5], &layer_matrix = saved[6], &values = saved[7],
                 &vectors = saved[8], &rank = saved[9];
    Tensor gate = saved[2].defined() ? saved[2].detach() : saved[2];
    const auto capsule = ctx->saved_data["set"].toCapsule();
    const auto& set = static_cast<const Settings&>(*capsule);
    // Take part even without a gradient: other processes wait for the sum, and their losses depend on this input.
    Tensor grad = grads[0].defined() ? grads[0] : torch::zeros_like(input);
    variable_list input_grads(5);
    if (ctx->saved_data["has_residual"]
            .toBool()) {  // the residual's gradient is already masked by ReLU
      if (gate.defined()) grad = ops::relu_mask(grad, gate);
      input_grads[3] = grad;
      gate = Tensor();
    }
    const auto output = if_defined(gate);
    const auto [own, grad_weight, grad_bias] = ops::whiten_backward_sums(
        grad, input, mean, covariance, layer_matrix, values, vectors, rank, output);
    if (weight.defined()) input_grads[1] = grad_weight;
    if (ctx->saved_data["has_bias"].toBool()) input_grads[2] = grad_bias;
    if (!ctx->saved_data["with_input"].toBool()) return input_grads;
    Tensor sums = own.detach();
    sum_over(set.group, sums);
    input_grads[0] =
        ops::whiten_backward_apply(grad, input, if_defined(weight), mean, covariance, layer_matrix,
                                   values, vectors, rank, sums, count, set.map, set.rule, output);
    return input_grads;
  }
};

}  // namespace

Whitened synchronised_whiten(const Tensor& input, const Tensor& weight, const Tensor& bias,
                             std::int64_t groups, const LayerMap& map, const SpectralRule& rule,
                             bool relu, const Tensor& residual, const ProcessGroup& group) {
  // Check before the first sum, so that all processes fail together.
  ops::check_activations("keel::whiten", "input", input, groups);
  ops::check_channels("keel::whiten", "weight", weight, input);
  ops::check_channels("keel::whiten", "bias", bias, input);
  ops::check_like("keel::whiten", "residual", residual, input);
  const auto set =
      c10::make_intrusive<Settings>(groups, to_string(map), to_string(rule), relu, group);
  // Convert outside the node, so that autograd returns each gradient in its parameter's type.
  const auto w = if_defined(ops::in_statistics_type(weight, input)),
             b = if_defined(ops::in_statistics_type(bias, input)), r = if_defined(residual);
  const auto run = [&]() -> variable_list {
    if (ops::needs_graph({input, ops::or_undefined(w), ops::or_undefined(b), residual}))
      return SynchronisedWhitenNode::apply(input, w, b, r, set);
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    return step(input, w, b, r, *set);
  };
  const variable_list out = run();
  return {out[0], out[2], out[3], out[4], out[5], out[7]};
}

}  // namespace keel::nn
