#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "keel/matrices.h"

namespace keel::testing {

/// A batch of n x n matrices that owns its memory.
template <typename T>
struct Batch {
  std::int64_t batch = 0, n = 0;
  std::vector<T> data;

  Batch() = default;
  Batch(std::int64_t matrices, std::int64_t size, T fill = T(0))
      : batch(matrices), n(size), data(std::size_t(matrices * size * size), fill) {}

  T& operator()(std::int64_t b, std::int64_t i, std::int64_t j) {
    return data[std::size_t((b * n + i) * n + j)];
  }
  T operator()(std::int64_t b, std::int64_t i, std::int64_t j) const {
    return data[std::size_t((b * n + i) * n + j)];
  }
  T* matrix(std::int64_t b) { return data.data() + b * n * n; }
  const T* matrix(std::int64_t b) const { return data.data() + b * n * n; }
  Matrices<T> view() { return contiguous(data.data(), batch, n); }
  Matrices<const T> view() const { return contiguous(data.data(), batch, n); }

  /// Copies n x n numbers into matrix b, converted to T.
  template <typename U>
  void set(std::int64_t b, const U* from) {
    for (std::int64_t k = 0; k < n * n; ++k) matrix(b)[k] = T(from[k]);
  }
};

template <typename To, typename From>
std::vector<To> as(const std::vector<From>& from) {
  return std::vector<To>(from.begin(), from.end());
}

template <typename To, typename From>
Batch<To> as(const Batch<From>& from) {
  Batch<To> to(from.batch, from.n);
  to.data = as<To>(from.data);
  return to;
}

/// Bitwise equality: NaN equals NaN, and -0 differs from 0.
template <typename T>
bool bitwise_equal(const T* a, const T* b, std::int64_t count) {
  return count == 0 || std::memcmp(a, b, sizeof(T) * std::size_t(count)) == 0;
}
template <typename T>
bool bitwise_equal(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && bitwise_equal(a.data(), b.data(), std::int64_t(a.size()));
}

}  // namespace keel::testing
