#pragma once

#include <complex>
#include <cstdint>
#include <type_traits>

namespace keel {

/// The type of the real numbers that belong to T: T itself, or U for std::complex<U>.
template <typename T>
struct RealNumber {
  using type = T;
};
template <typename T>
struct RealNumber<std::complex<T>> {
  using type = T;
};
template <typename T>
using RealOf = typename RealNumber<T>::type;
template <typename T>
inline constexpr bool kIsComplex = !std::is_same_v<T, RealOf<T>>;

/// A batch of n x n matrices: row-major, rows `row_stride` elements apart, matrices `batch_stride`
/// elements apart. This is a view: it owns nothing.
template <typename T>
struct Matrices {
  T* data = nullptr;
  std::int64_t batch = 0;
  std::int64_t n = 0;
  std::int64_t row_stride = 0;
  std::int64_t batch_stride = 0;

  constexpr T* operator[](std::int64_t index) const { return data + index * batch_stride; }
  explicit operator bool() const { return data != nullptr; }
  operator Matrices<const T>() const requires(!std::is_const_v<T>) {
    return {data, batch, n, row_stride, batch_stride};
  }
};

/// The same for rectangular matrices.
template <typename T>
struct Rectangles {
  T* data = nullptr;
  std::int64_t batch = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t row_stride = 0;
  std::int64_t batch_stride = 0;

  constexpr T* operator[](std::int64_t index) const { return data + index * batch_stride; }
  explicit operator bool() const { return data != nullptr; }
  operator Rectangles<const T>() const requires(!std::is_const_v<T>) {
    return {data, batch, rows, columns, row_stride, batch_stride};
  }
};

/// `batch` matrices, densely packed.
template <typename T>
Matrices<T> contiguous(T* data, std::int64_t batch, std::int64_t n) {
  return {data, batch, n, n, n * n};
}

template <typename T>
Rectangles<T> contiguous(T* data, std::int64_t batch, std::int64_t rows, std::int64_t columns) {
  return {data, batch, rows, columns, columns, rows * columns};
}

}  // namespace keel
