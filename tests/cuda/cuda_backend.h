#pragma once

#include "activations_on_device.h"
#include "batch_on_device.h"
#include "on_device.h"
#include "support/backend.h"

namespace keel::testing {

/// See support/backend.h.
struct Cuda {
  template <typename T>
  using Numbers = OnDevice<T>;
  using Way = Stream;
  static Way way() { return {}; }
  /// The same call five times.
  static std::vector<Way> ways() { return std::vector<Way>(5); }
  static std::vector<ActivationShape> shapes() { return device_shapes(); }
  static constexpr std::int64_t kLargest = 130;

  template <typename T, typename... Given>
  static void affine(const Way& way, const Given&... given) {
    cuda::affine<T>(given..., way);
  }
  template <typename T, typename... Given>
  static void affine_backward(const Way& way, const Given&... given) {
    cuda::affine_backward<T>(given..., way);
  }
  template <typename T, typename... Given>
  static void moments(const Way& way, const Given&... given) {
    cuda::moments<T>(given..., way);
  }
  template <typename T, typename... Given>
  static void cross_moments(const Way& way, const Given&... given) {
    cuda::cross_moments<T>(given..., way);
  }
  template <typename T, typename... Given>
  static void partial_moments(const Way& way, const Given&... given) {
    cuda::partial_moments<T>(given..., way);
  }
  template <typename A, typename... Given>
  static void moments_from_partial(const Way& way, const Given&... given) {
    cuda::moments_from_partial<A>(given..., way);
  }
  template <typename T, typename... Given>
  static void eigh(const Way& way, const Given&... given) {
    cuda::eigh<T>(given..., way);
  }
  template <typename T, typename... Given>
  static void eigh_backward(const Way& way, const Given&... given) {
    cuda::eigh_backward<T>(given..., way);
  }
  template <typename T, typename... Given>
  static void layer_matrix(const Way& way, const Given&... given) {
    cuda::layer_matrix<T>(given..., way);
  }
  template <typename T, typename... Given>
  static void layer_matrix_backward(const Way& way, const Given&... given) {
    cuda::layer_matrix_backward<T>(given..., way);
  }
};

}  // namespace keel::testing
