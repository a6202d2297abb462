#pragma once

// A whitening layer's numbers in host memory.

#include <limits>
#include <vector>

#include "keel/whiten.h"
#include "support/activations.h"
#include "support/random.h"

namespace keel::testing {

/// One number per channel, around `middle`.
template <typename A>
std::vector<A> layer_numbers(std::int64_t channels, std::uint64_t seed, double middle) {
  std::vector<A> all;
  for (const double x : Random(seed).normals(channels)) all.push_back(A(middle + 0.3 * x));
  return all;
}

/// A layer's numbers, poisoned until they are written.
template <typename T>
struct LayerOnHost {
  using A = Accumulator<T>;

  ActivationShape shape;
  ActivationBuffer<T> input, dL_doutput, output, dL_dinput;
  std::vector<A> weight, bias, mean, covariance, layer_matrix, values, vectors, dL_dweight,
      dL_dbias;
  std::vector<std::int64_t> rank;

  LayerOnHost(const ActivationBuffer<T>& x, const ActivationBuffer<T>& slope)
      : shape(x.shape),
        input(x),
        dL_doutput(slope),
        output(x.shape, x.order),
        dL_dinput(x.shape, x.order),
        weight(layer_numbers<A>(x.shape.channels, 51, 1)),
        bias(layer_numbers<A>(x.shape.channels, 52, 0)),
        rank(std::size_t(x.shape.groups), -1) {
    const A poison = std::numeric_limits<A>::quiet_NaN();
    for (auto* numbers : {&mean, &values, &dL_dweight, &dL_dbias})
      numbers->assign(weight.size(), poison);
    for (auto* matrices : {&covariance, &layer_matrix, &vectors})
      matrices->assign(weight.size() * std::size_t(shape.group_size()), poison);
    for (auto* activations : {&output, &dL_dinput})
      for (T& entry : activations->data) entry = from_double<T>(poison);
  }

  template <typename U>
  auto per_group(std::vector<U>& numbers) const {
    return contiguous(numbers.data(), shape.groups, shape.group_size());
  }
  WhitenState<A> state() {
    return {mean.data(),
            per_group(covariance),
            per_group(layer_matrix),
            {values.data(), per_group(vectors), rank.data()}};
  }

  void forward(const LayerMap& map, const Executor& executor = serial()) {
    cpu::whiten<T>(map, std::as_const(input).view(), weight.data(), bias.data(), state(),
                   output.view(), executor);
  }
  void backward(const LayerMap& map, const SpectralRule& rule,
                const Executor& executor = serial()) {
    cpu::whiten_backward<T>(map, rule, std::as_const(dL_doutput).view(),
                            std::as_const(input).view(), weight.data(), state(), dL_dinput.view(),
                            dL_dweight.data(), dL_dbias.data(), executor);
  }
};

}  // namespace keel::testing
