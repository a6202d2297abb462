#pragma once

// A whitening layer's numbers on the device, and scratch memory that behaves like LibTorch's.

#include <limits>
#include <map>

#include "activations_on_device.h"
#include "keel/affine.h"
#include "keel/moments.h"
#include "keel/weight_backward.h"
#include "keel/whiten.h"
#include "support/layer.h"

namespace keel::testing {

/// Hands out returned scratch memory again at once, as LibTorch's allocator does. Only the order of kernels on the
/// stream protects it: the next kernel may get memory that the last one still reads.
class Reuse {
 public:
  Reuse() = default;
  Reuse(const Reuse&) = delete;
  Reuse& operator=(const Reuse&) = delete;
  ~Reuse() {
    cudaDeviceSynchronize();
    for (const auto& [memory, bytes] : sizes_) cudaFree(memory);
  }
  Stream stream(const Stream& on = {}) {
    return {on.handle, [this](std::size_t bytes) { return take(bytes); },
            [this](void* memory) { free_.emplace(sizes_.at(memory), memory); }};
  }

 private:
  void* take(std::size_t bytes) {
    if (const auto found = free_.lower_bound(bytes); found != free_.end()) {
      void* const memory = found->second;
      free_.erase(found);
      return memory;
    }
    void* memory = nullptr;
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;  // otherwise a capture forbids it
    check(cudaThreadExchangeStreamCaptureMode(&mode));
    check(cudaMalloc(&memory, bytes));
    check(cudaThreadExchangeStreamCaptureMode(&mode));
    sizes_[memory] = bytes;
    return memory;
  }
  std::multimap<std::size_t, void*> free_;
  std::map<void*, std::size_t> sizes_;
};

/// A layer's numbers on the device, poisoned until they are written.
template <typename T>
struct LayerOnDevice {
  using A = Accumulator<T>;
  static std::vector<A> poison(std::int64_t count) {
    return std::vector<A>(std::size_t(count), std::numeric_limits<A>::quiet_NaN());
  }
  ActivationShape shape;
  std::int64_t d = shape.group_size(), entries = shape.channels * d;
  ActivationsOnDevice<T> input, dL_doutput, output, dL_dinput;
  OnDevice<A> weight, bias, mean, covariance, layer_matrix, values, vectors, dL_dweight, dL_dbias,
      dL_dmean, dL_dcovariance, matrix, cross, dL_dlayer_matrix;
  OnDevice<std::int64_t> rank;
  OnDevice<double> moments;  ///< summed over processes in forward
  OnDevice<A> sums;          ///< summed over processes in backward

  LayerOnDevice(const ActivationBuffer<T>& x, const ActivationBuffer<T>& slope)
      : shape(x.shape),
        input(x),
        dL_doutput(slope),
        output(x.shape, x.order),
        dL_dinput(x.shape, x.order),
        weight(layer_numbers<A>(x.shape.channels, 51, 1)),
        bias(layer_numbers<A>(x.shape.channels, 52, 0)),
        mean(poison(x.shape.channels)),
        covariance(poison(entries)),
        layer_matrix(poison(entries)),
        values(poison(x.shape.channels)),
        vectors(poison(entries)),
        dL_dweight(poison(x.shape.channels)),
        dL_dbias(poison(x.shape.channels)),
        dL_dmean(poison(x.shape.channels)),
        dL_dcovariance(poison(entries)),
        matrix(poison(entries)),
        cross(poison(entries)),
        dL_dlayer_matrix(poison(entries)),
        rank(std::vector<std::int64_t>(std::size_t(x.shape.groups), -1)),
        moments(std::vector<double>(
            std::size_t(partial_moments_size(x.shape.channels, x.shape.groups)))),
        sums(poison(x.shape.channels + entries)) {}

  Matrices<A> per_group(OnDevice<A>& numbers) {
    return contiguous<A>(numbers.data(), shape.groups, d);
  }
  WhitenState<A> state() {
    return {mean.data(),
            per_group(covariance),
            per_group(layer_matrix),
            {values.data(), per_group(vectors), rank.data()}};
  }

  void forward(const LayerMap& map, const Stream& stream = {}) {
    cuda::whiten<T>(map, input.view(), weight.data(), bias.data(), state(), output.view(), stream);
  }
  void backward(const LayerMap& map, const SpectralRule& rule, const Stream& stream = {}) {
    cuda::whiten_backward<T>(map, rule, dL_doutput.view(), input.view(), weight.data(), state(),
                             dL_dinput.view(), dL_dweight.data(), dL_dbias.data(), stream);
  }

  // The same in two halves each, with the processes' sum in between.
  void sum_moments(const Stream& stream = {}) {
    cuda::partial_moments<T>(input.view(), nullptr, moments.data(), stream);
  }
  void apply(const LayerMap& map, const Stream& stream = {}) {
    cuda::whiten_apply<T>(map, input.view(), moments.data(), nullptr, weight.data(), bias.data(),
                          state(), output.view(), stream);
  }
  void sum_backward(const Stream& stream = {}) {
    cuda::whiten_backward_sums<T>(dL_doutput.view(), input.view(), state(), sums.data(),
                                  dL_dweight.data(), dL_dbias.data(), stream);
  }
  void apply_backward(const LayerMap& map, const SpectralRule& rule, const Stream& stream = {}) {
    cuda::whiten_backward_apply<T>(map, rule, dL_doutput.view(), input.view(), weight.data(),
                                   state(), sums.data(), moments.data(), dL_dinput.view(), stream);
  }

  void forward_by_stages(const LayerMap& map) {
    cuda::moments<T>(input.view(), mean.data(), per_group(covariance));
    cuda::layer_matrix<A>(map, per_group(covariance), per_group(layer_matrix), state().spectrum);
    auto product = layer_matrix.back();
    const auto factor = weight.back();
    for (std::size_t k = 0; k < product.size(); ++k) product[k] *= factor[k / std::size_t(d)];
    OnDevice<A> scaled(product);
    cuda::affine<T>(per_group(scaled), mean.data(), bias.data(), input.view(), output.view());
    output.back();
  }
  void backward_by_stages(const LayerMap& map, const SpectralRule& rule) {
    cuda::cross_moments<T>(dL_doutput.view(), input.view(), mean.data(), dL_dbias.data(),
                           per_group(cross));
    cuda::weight_backward<A>(weight.data(), per_group(layer_matrix), dL_dbias.data(),
                             per_group(cross), dL_dweight.data(), dL_dmean.data(),
                             per_group(dL_dlayer_matrix), per_group(matrix));
    cuda::layer_matrix_backward<A>(map, rule, per_group(covariance), state().spectrum,
                                   per_group(dL_dlayer_matrix), per_group(dL_dcovariance));
    cuda::affine_backward<T>(per_group(matrix), dL_doutput.view(), per_group(dL_dcovariance),
                             dL_dmean.data(), input.view(), mean.data(), dL_dinput.view());
  }
};

}  // namespace keel::testing
