#pragma once

#include <algorithm>
#include <functional>
#include <string>

#include "keel/error.h"
#include "keel/matrices.h"
#include "text.h"

namespace keel {

template <typename T>
std::string shape(const Matrices<T>& matrices) {
  const std::string n = text(matrices.n);
  return std::string("(").append(text(matrices.batch)).append(", " + n + ", " + n + ")");
}

template <typename T>
std::string shape(const Rectangles<T>& matrices) {
  const std::string rows = text(matrices.rows), columns = text(matrices.columns);
  return std::string("(").append(text(matrices.batch)).append(", " + rows + ", " + columns + ")");
}

/// Whether a view has no elements. Only then may it be null where an argument is not optional.
template <typename T>
bool holds_nothing(const Matrices<T>& matrices) {
  return matrices.batch == 0 || matrices.n == 0;
}
template <typename T>
bool holds_nothing(const Rectangles<T>& matrices) {
  return matrices.batch == 0 || matrices.rows == 0 || matrices.columns == 0;
}

/// Throws unless the first argument of an operation has a size, and memory unless that is zero.
template <typename T>
void require_given(const char* operation, const char* name, const Matrices<T>& given) {
  if (given.batch < 0 || given.n < 0)
    throw Error(std::string(operation) + ": expected n >= 0 and batch >= 0, got " + shape(given));
  if (given || holds_nothing(given)) return;
  throw Error(std::string(operation) + ": expected " + name + " of shape " + shape(given) +
              ", got null");
}
template <typename T>
void require_given(const char* operation, const char* name, const Rectangles<T>& given) {
  if (given.batch < 0 || given.rows < 0 || given.columns < 0)
    throw Error(std::string(operation) + ": expected sizes >= 0, got " + shape(given));
  if (given || holds_nothing(given)) return;
  throw Error(std::string(operation) + ": expected " + name + " of shape " + shape(given) +
              ", got null");
}

/// Throws unless `numbers` points to memory, or there are none.
inline void require_numbers(const char* operation, const char* name, const void* numbers,
                            std::int64_t count) {
  if (numbers != nullptr || count <= 0) return;
  throw Error(std::string(operation) + ": expected " + text(count) + " " + name + ", got null");
}

/// Throws unless `given` has the shape of `expected`.
template <typename T, typename U>
void require_same_shape(const char* operation, const char* name, const Matrices<T>& expected,
                        const Matrices<U>& given) {
  if (given ? given.batch == expected.batch && given.n == expected.n : holds_nothing(expected))
    return;
  throw Error(std::string(operation) + ": expected " + name + " of shape " + shape(expected) +
              ", got " + (given ? shape(given) : "null"));
}

/// The same for an argument that may be left out.
template <typename T, typename U>
void require_same_shape_or_null(const char* operation, const char* name,
                                const Matrices<T>& expected, const Matrices<U>& given) {
  if (given) require_same_shape(operation, name, expected, given);
}

/// Throws unless `given` is a batch of rows x columns matrices.
template <typename T>
void require_shape(const char* operation, const char* name, const Rectangles<T>& given,
                   std::int64_t batch, std::int64_t rows, std::int64_t columns) {
  const Rectangles<T> expected{nullptr, batch, rows, columns, 0, 0};
  const bool same = given.batch == batch && given.rows == rows && given.columns == columns;
  if (same && (given || holds_nothing(expected))) return;
  throw Error(std::string(operation) + ": expected " + name + " of shape " + shape(expected) +
              ", got " + (same ? "null" : shape(given)));
}

/// Whether the rows of all matrices follow each other without gaps.
template <typename T>
bool is_dense(const Matrices<T>& matrices) {
  return matrices.row_stride == matrices.n &&
         (matrices.batch == 1 || matrices.batch_stride == matrices.n * matrices.n);
}
template <typename T>
bool is_dense(const Rectangles<T>& matrices) {
  return matrices.row_stride == matrices.columns &&
         (matrices.batch == 1 || matrices.batch_stride == matrices.rows * matrices.columns);
}

/// Elements of dense matrices.
template <typename T>
std::int64_t size_of(const Matrices<T>& matrices) {
  return matrices.batch * matrices.n * matrices.n;
}
template <typename T>
std::int64_t size_of(const Rectangles<T>& matrices) {
  return matrices.batch * matrices.rows * matrices.columns;
}

/// Throws if the output shares memory with an input. Does not detect every case: the rows of two views with gaps may
/// lie between each other without overlapping, so such views only count if they begin at the same address.
template <typename Out, typename In>
void require_apart(const char* operation, const char* name, const Out& output,
                   const char* input_name, const In& input) {
  if (!output || !input || holds_nothing(output) || holds_nothing(input)) return;
  const auto *const first = output.data, *const other = input.data;
  const bool dense = is_dense(output) && is_dense(input);
  if (first != other && !(dense && std::less<>()(first, other + size_of(input)) &&
                          std::less<>()(other, first + size_of(output))))
    return;
  throw Error(std::string(operation) + ": expected " + name + " apart from " + input_name +
              ", got memory that they share");
}

/// Argument checks of every backend of eigh.
template <typename T>
void check_eigh(const char* operation, const Matrices<const T>& matrices, const RealOf<T>* values,
                const Matrices<T>& vectors) {
  require_given(operation, "matrices", matrices);
  require_same_shape(operation, "vectors", matrices, vectors);
  require_apart(operation, "vectors", vectors, "matrices", matrices);
  require_numbers(operation, "values", values, matrices.batch * matrices.n);
}

/// Those of svd.
template <typename T>
void check_svd(const char* operation, Rectangles<const T> matrices, const T* values,
               Rectangles<T> left, Rectangles<T> right) {
  require_given(operation, "matrices", matrices);
  const std::int64_t k = std::min(matrices.rows, matrices.columns);
  require_shape(operation, "left", left, matrices.batch, matrices.rows, k);
  require_shape(operation, "right", right, matrices.batch, k, matrices.columns);
  require_apart(operation, "left", left, "matrices", matrices);
  require_apart(operation, "right", right, "matrices", matrices);
  require_numbers(operation, "values", values, matrices.batch * k);
}

}  // namespace keel
