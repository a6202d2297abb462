#pragma once

// The core's backends as types, for the contracts that all of them keep (*_contract.h). tests/cuda/cuda_backend.h has
// CUDA's. A backend says where numbers live (Numbers), how a call runs (Way), and has the stages' functions.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "keel/affine.h"
#include "keel/eigh.h"
#include "keel/gradient_rule.h"
#include "keel/layer_matrix.h"
#include "keel/moments.h"
#include "support/activations.h"
#include "support/batch.h"
#include "support/hermitian.h"

namespace keel::testing {

/// A copy of the given numbers, `skip` numbers after the start of its memory.
template <typename T>
class OnHost {
 public:
  explicit OnHost(const std::vector<T>& numbers, std::size_t skip = 0)
      : skip_(skip), memory_(numbers.size() + skip) {
    std::copy(numbers.begin(), numbers.end(), memory_.begin() + std::ptrdiff_t(skip));
  }
  OnHost(const OnHost&) = delete;
  OnHost& operator=(const OnHost&) = delete;
  T* data() { return memory_.data() + skip_; }
  std::vector<T> back() const { return {memory_.begin() + std::ptrdiff_t(skip_), memory_.end()}; }

 private:
  std::size_t skip_;
  std::vector<T> memory_;
};

struct Cpu {
  template <typename T>
  using Numbers = OnHost<T>;
  using Way = Executor;
  static Way way() { return serial(); }
  /// Ways that give the same bits.
  static std::vector<Way> ways() { return {serial(), threads(2), threads(5)}; }
  static const std::vector<ActivationShape>& shapes() { return activation_shapes(); }
  /// Of matrices that the reference decomposes many times.
  static constexpr std::int64_t kLargest = 33;

  template <typename T, typename... Given>
  static void affine(const Way& way, const Given&... given) {
    cpu::affine<T>(given..., way);
  }
  template <typename T, typename... Given>
  static void affine_backward(const Way& way, const Given&... given) {
    cpu::affine_backward<T>(given..., way);
  }
  template <typename T, typename... Given>
  static void moments(const Way& way, const Given&... given) {
    cpu::moments<T>(given..., way);
  }
  template <typename T, typename... Given>
  static void cross_moments(const Way& way, const Given&... given) {
    cpu::cross_moments<T>(given..., way);
  }
  template <typename T, typename... Given>
  static void partial_moments(const Way& way, const Given&... given) {
    cpu::partial_moments<T>(given..., way);
  }
  template <typename A, typename... Given>
  static void moments_from_partial(const Way&, const Given&... given) {
    cpu::moments_from_partial<A>(given...);
  }
  template <typename T, typename... Given>
  static void eigh(const Way& way, const Given&... given) {
    cpu::eigh<T>(given..., way);
  }
  template <typename T, typename... Given>
  static void eigh_backward(const Way& way, const Given&... given) {
    cpu::eigh_backward<T>(given..., way);
  }
  template <typename T, typename... Given>
  static void layer_matrix(const Way& way, const Given&... given) {
    cpu::layer_matrix<T>(given..., way);
  }
  template <typename T, typename... Given>
  static void layer_matrix_backward(const Way& way, const Given&... given) {
    cpu::layer_matrix_backward<T>(given..., way);
  }
};

/// A backend and a type of elements.
template <typename B, typename T>
struct On {
  using Backend = B;
  using Element = T;
};
template <typename B>
using OnEveryElement = ::testing::Types<On<B, float>, On<B, double>, On<B, Half>, On<B, BFloat16>>;
template <typename B>
using OnFloats = ::testing::Types<On<B, float>, On<B, double>>;
template <typename B>
using OnComplex = ::testing::Types<On<B, std::complex<float>>, On<B, std::complex<double>>>;

template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), sizeof(T) * a.size()) == 0);
}

template <template <typename> class Numbers, typename T>
class ActivationsIn {
 public:
  /// Starts `skip` numbers after the aligned address from the allocator.
  explicit ActivationsIn(const ActivationBuffer<T>& x, std::size_t skip = 0)
      : shape_(x.shape), order_(x.order), numbers_(x.data, skip) {}
  /// Poisoned, so that missing writes show.
  ActivationsIn(const ActivationShape& shape, Order order, std::size_t skip = 0)
      : ActivationsIn(poisoned(shape, order), skip) {}
  Activations<T> view() {
    return {numbers_.data(),  shape_.batch,  shape_.channels,
            shape_.positions, shape_.groups, order_};
  }
  ActivationBuffer<T> back() {
    ActivationBuffer<T> x(shape_, order_);
    x.data = numbers_.back();
    return x;
  }

 private:
  static ActivationBuffer<T> poisoned(const ActivationShape& shape, Order order) {
    ActivationBuffer<T> x(shape, order);
    for (T& entry : x.data) std::memset(&entry, 0xff, sizeof(T));
    return x;
  }
  ActivationShape shape_;
  Order order_;
  Numbers<T> numbers_;
};

/// Matrices with NaN in the gaps between rows and between matrices. Reading a gap spoils the result; writing one shows
/// in back().
template <template <typename> class Numbers, typename T>
class BatchIn {
 public:
  explicit BatchIn(const Batch<T>& m, std::int64_t gap = 0)
      : batch_(m.batch),
        n_(m.n),
        row_(m.n + gap),
        step_(m.n * row_ + 3 * gap),
        numbers_(spread(m)) {}
  Matrices<T> view() { return {numbers_.data(), batch_, n_, row_, step_}; }
  Batch<T> back() {
    const std::vector<T> all = numbers_.back();
    Batch<T> m(batch_, n_);
    for (std::int64_t k = 0; k < std::int64_t(all.size()); ++k) {
      const std::int64_t b = k / step_, i = k % step_ / row_, j = k % step_ % row_;
      if (i < n_ && j < n_)
        m(b, i, j) = all[std::size_t(k)];
      else
        EXPECT_TRUE(is_nan(all[std::size_t(k)])) << "written between the matrices";
    }
    return m;
  }

 private:
  std::vector<T> spread(const Batch<T>& m) const {
    std::vector<T> all(std::size_t(batch_ * step_), not_a_number<T>());
    for (std::int64_t b = 0; b < batch_; ++b)
      for (std::int64_t i = 0; i < n_; ++i)
        for (std::int64_t j = 0; j < n_; ++j)
          all[std::size_t(b * step_ + i * row_ + j)] = m(b, i, j);
    return all;
  }
  std::int64_t batch_, n_, row_, step_;
  Numbers<T> numbers_;
};

}  // namespace keel::testing
