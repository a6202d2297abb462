#pragma once

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

/// Throws unless `given` (or null) has the shape of `expected`.
template <typename T, typename U>
void require_same_shape(const char* operation, const char* name, const Matrices<T>& expected,
                        const Matrices<U>& given) {
  if (!given || (given.batch == expected.batch && given.n == expected.n)) return;
  throw Error(std::string(operation) + ": expected " + name + " of shape " + shape(expected) +
              ", got " + shape(given));
}

/// Throws unless `given` is a batch of rows x columns matrices.
template <typename T>
void require_shape(const char* operation, const char* name, const Rectangles<T>& given,
                   std::int64_t batch, std::int64_t rows, std::int64_t columns) {
  if (given.batch == batch && given.rows == rows && given.columns == columns) return;
  const Rectangles<T> expected{nullptr, batch, rows, columns, 0, 0};
  throw Error(std::string(operation) + ": expected " + name + " of shape " + shape(expected) +
              ", got " + shape(given));
}

}  // namespace keel
