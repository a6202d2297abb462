// Sums that processes add up to get the moments of all their samples, and what becomes of them:
// one float64 tensor (1 + C + C d) of count, sum (x - shift) and sum (x - shift)(x - shift)^T.

#include "activations.h"
#include "autograd.h"
#include "check.h"
#include "device.h"
#include "keel/moments.h"
#include "matrices.h"
#include "ops/calls.h"

namespace keel::ops {

Tensor partial_moments(const Tensor& input, std::int64_t groups, const Optional<Tensor>& shift) {
  static const auto op = operator_named<decltype(partial_moments)>("keel::partial_moments");
  return op.call(input, groups, shift);
}

std::tuple<Tensor, Tensor> moments_from_partial(const Tensor& partial, std::int64_t channels,
                                                std::int64_t groups, const Optional<Tensor>& shift,
                                                Optional<at::ScalarType> type) {
  static const auto op =
      operator_named<decltype(moments_from_partial)>("keel::moments_from_partial");
  return op.call(partial, channels, groups, shift, type);
}

namespace {

constexpr const char* kPartial = "keel::partial_moments";
constexpr const char* kFromPartial = "keel::moments_from_partial";

/// The parts of such a tensor.
struct Packed {
  Tensor count;   ///< (1)
  Tensor sum;     ///< (C)
  Tensor second;  ///< (G, d, d)

  Packed(const Tensor& all, std::int64_t channels, std::int64_t groups) {
    const std::int64_t d = channels / groups;
    count = all.narrow(0, 0, 1);
    sum = all.narrow(0, 1, channels);
    second = all.narrow(0, 1 + channels, channels * d).view({groups, d, d});
  }
};

Tensor empty_partial(const Tensor& input, std::int64_t groups) {
  const auto channels = input.sym_size(1);
  return input.new_empty_symint({channels * (channels / groups) + channels + c10::SymInt(1)},
                                input.options().dtype(at::kDouble));
}

void check_partial_inputs(const Tensor& input, std::int64_t groups, const Optional<Tensor>& shift) {
  check_activations(kPartial, "input", input, groups);
  check_channels(kPartial, "shift", or_undefined(shift), input);
}

Tensor partial_moments_kernel(const Tensor& input, std::int64_t groups,
                              const Optional<Tensor>& shift) {
  check_partial_inputs(input, groups, shift);
  const Order order = order_of(input);
  const Tensor x = in_order(input, order);
  const Tensor result = empty_partial(input, groups);
  if (input.size(1) == 0) return result.fill_(double(samples_of(input)));
  Tensor about = or_undefined(shift);
  if (about.defined()) about = about.to(at::kDouble).contiguous();
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), kPartial, [&] {
    using T = CoreType<scalar_t>;
    on_device_of(x, KEEL_TWINS(partial_moments<T>), activations<const T>(x, groups, order),
                 data_or_null<const double>(about), result.data_ptr<double>());
  });
  return result;
}

Tensor partial_moments_meta(const Tensor& input, std::int64_t groups,
                            const Optional<Tensor>& shift) {
  check_partial_inputs(input, groups, shift);
  return empty_partial(input, groups);
}

Tensor partial_moments_autograd(const Tensor& input, std::int64_t groups,
                                const Optional<Tensor>& shift) {
  const auto compute = [&] {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    return partial_moments(input, groups, shift);
  };
  if (!needs_graph({input, or_undefined(shift)})) return compute();
  return WithoutDerivative::apply(
      std::string(kPartial) + ": no derivative; use keel::moments, which has one",
      std::function<variable_list()>([&] { return variable_list{compute()}; }), input, shift)[0];
}

/// Made of torch's operators: for all devices, and differentiable.
std::tuple<Tensor, Tensor> moments_from_partial_composite(const Tensor& partial,
                                                          std::int64_t channels,
                                                          std::int64_t groups,
                                                          const Optional<Tensor>& shift,
                                                          Optional<at::ScalarType> type) {
  TORCH_CHECK_VALUE(groups >= 1 && channels >= 0 && channels % groups == 0, kFromPartial,
                    ": expected a number of groups that divides the channels, got ", groups,
                    " groups of ", channels, " channels");
  const std::int64_t d = channels / groups, length = 1 + channels * (1 + d);
  TORCH_CHECK(
      partial.scalar_type() == at::kDouble && partial.dim() == 1 && partial.sym_size(0) == length,
      kFromPartial, ": expected partial (", length, ") of type Double, got ", shape_of(partial),
      " of type ", c10::toString(partial.scalar_type()));
  const Packed sums(partial, channels, groups);
  Tensor mean = sums.sum / sums.count;
  const Tensor off = mean.view({groups, d, 1});
  Tensor covariance = sums.second / sums.count - off * off.mT();
  // Summed over processes, the two triangles may differ in the last bit.
  covariance = covariance.tril() + covariance.tril(-1).mT();
  covariance.diagonal(0, -2, -1).clamp_min_(0);
  const Tensor from = or_undefined(shift);
  if (from.defined()) mean = mean + from.to(at::kDouble);
  const auto wanted = type.value_or(at::kDouble);
  return {mean.to(wanted), covariance.to(wanted)};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(keel, m) {
  m.def("partial_moments(Tensor input, int groups=1, Tensor? shift=None) -> Tensor");
  m.def(
      "moments_from_partial(Tensor partial, int channels, int groups=1, Tensor? shift=None,"
      " ScalarType? dtype=None) -> (Tensor mean, Tensor covariance)",
      &moments_from_partial_composite);
}
TORCH_LIBRARY_IMPL(keel, CPU, m) { m.impl("partial_moments", &partial_moments_kernel); }
TORCH_LIBRARY_IMPL(keel, CUDA, m) { m.impl("partial_moments", &partial_moments_kernel); }
TORCH_LIBRARY_IMPL(keel, Meta, m) { m.impl("partial_moments", &partial_moments_meta); }
TORCH_LIBRARY_IMPL(keel, Autograd, m) { m.impl("partial_moments", &partial_moments_autograd); }

}  // namespace keel::ops
