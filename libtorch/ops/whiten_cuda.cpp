// The training step of every whitening layer on CUDA, where the core has its stages fused.

#include "activations.h"
#include "check.h"
#include "device.h"
#include "keel/whiten.h"
#include "matrices.h"
#include "ops/whiten.h"
#include "types.h"

namespace keel::ops {
namespace {

constexpr const char *kForwardCuda = "keel::whiten", *kBackwardCuda = "keel::whiten_backward";

/// A number per channel, as the core reads it.
Tensor prepared(const Tensor& numbers, const Tensor& input) {
  return numbers.defined() ? in_statistics_type(numbers, input).contiguous() : numbers;
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> whiten_forward_cuda(
    const Tensor& input, const Optional<Tensor>& weight, const Optional<Tensor>& bias,
    std::int64_t groups, StringView map, StringView rule) {
  check_whiten(input, weight, bias, groups);
  const SubspaceMap chosen = parsed(subspace_map, kForwardCuda, map);
  parsed(spectral_rule, kForwardCuda, rule);  // a bad rule is an error now
  const Order order = order_of(input);
  const Tensor x = in_order(input, order);
  const Tensor w = prepared(or_undefined(weight), input), b = prepared(or_undefined(bias), input);
  const Tensor mean = empty_channels(input), covariance = empty_group_matrices(input, groups),
               subspace = empty_matrices(covariance), values = empty_values(covariance),
               vectors = empty_matrices(covariance), found = empty_rank(covariance);
  Tensor output;
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), kForwardCuda, [&] {
    using T = CoreType<scalar_t>;
    using A = Accumulator<T>;
    const WhitenState<A> state{
        mean.data_ptr<A>(),
        matrices<A>(covariance),
        matrices<A>(subspace),
        {values.data_ptr<A>(), matrices<A>(vectors), found.data_ptr<std::int64_t>()}};
    on_cuda(x, [&](const Stream& stream) {
      cuda::whiten<T>(
          chosen, activations<const T>(x, groups, order), data_or_null<const A>(w),
          data_or_null<const A>(b), state,
          [&] {
            output = empty_activations(input, order);
            return activations<T>(output, groups, order);
          },
          stream);
    });
  });
  return {output, mean, covariance, subspace, values, vectors, found};
}

std::tuple<Tensor, Tensor, Tensor> whiten_backward_cuda(
    const Tensor& grad_output, const Tensor& input, const Optional<Tensor>& weight,
    const Tensor& mean, const Tensor& covariance, const Tensor& subspace, const Tensor& values,
    const Tensor& vectors, const Tensor& rank, StringView map, StringView rule) {
  const std::int64_t groups = check_whiten_backward(grad_output, input, weight, mean, covariance,
                                                    subspace, values, vectors, rank);
  const SubspaceMap chosen = parsed(subspace_map, kBackwardCuda, map);
  const SpectralRule by = parsed(spectral_rule, kBackwardCuda, rule);
  const Order order = order_of(input);
  const Tensor x = in_order(input, order), dL_doutput = in_order(grad_output, order);
  const Tensor w = prepared(or_undefined(weight), input), mu = prepared(mean, input);
  const Tensor c = readable(covariance), s = readable(subspace), v = readable(vectors),
               l = values.contiguous(), r = rank.contiguous();
  const Tensor dL_dweight = empty_channels(input), dL_dbias = empty_channels(input);
  Tensor dL_dinput;
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), kBackwardCuda, [&] {
    using T = CoreType<scalar_t>;
    using A = Accumulator<T>;
    const WhitenState<const A> state{
        mu.data_ptr<A>(),
        matrices<const A>(c),
        matrices<const A>(s),
        {l.data_ptr<A>(), matrices<const A>(v), r.data_ptr<std::int64_t>()}};
    on_cuda(x, [&](const Stream& stream) {
      cuda::whiten_backward<T>(
          chosen, by, activations<const T>(dL_doutput, groups, order),
          activations<const T>(x, groups, order), data_or_null<const A>(w), state,
          [&] {
            dL_dinput = empty_activations(input, order);
            return activations<T>(dL_dinput, groups, order);
          },
          dL_dweight.data_ptr<A>(), dL_dbias.data_ptr<A>(), stream);
    });
  });
  return {dL_dinput, dL_dweight, dL_dbias};
}

}  // namespace

TORCH_LIBRARY_IMPL(keel, CUDA, m) {
  m.impl("whiten_forward", &whiten_forward_cuda);
  m.impl("whiten_backward", &whiten_backward_cuda);
}

}  // namespace keel::ops
