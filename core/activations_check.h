#pragma once

// Argument checks for the stages that take activations.

#include <string>

#include "keel/activations.h"
#include "shape.h"

namespace keel {

template <typename T>
std::string shape(const Activations<T>& x) {
  return std::string("(") + text(x.batch) + ", " + text(x.channels) + ", " + text(x.positions) +
         ")" + (x.order == Order::channels_last ? " channels_last" : "") + " in " + text(x.groups) +
         " groups";
}

template <typename T>
void require_valid(const char* operation, const char* name, const Activations<T>& x) {
  if (x.batch >= 0 && x.channels >= 0 && x.positions >= 0 && x.groups > 0 &&
      x.channels % x.groups == 0)
    return;
  throw Error(std::string(operation) + ": expected " + name +
              " (N, C, S) with groups that divide C, got " + shape(x));
}

/// For activations that a stage reads or writes without a gate, residual or ReLU.
template <typename T>
void require_plain(const char* operation, const char* name, const Activations<T>& x) {
  if (x.gate == nullptr && x.residual == nullptr && !x.rectified) return;
  throw Error(std::string(operation) + ": expected " + name +
              " without a gate, residual or ReLU, got one with " +
              (x.gate != nullptr       ? "a gate"
               : x.residual != nullptr ? "a residual"
                                       : "ReLU"));
}

template <typename T, typename U>
void require_same_shape(const char* operation, const char* name, const Activations<T>& expected,
                        const Activations<U>& given) {
  if (given.batch == expected.batch && given.channels == expected.channels &&
      given.positions == expected.positions && given.groups == expected.groups &&
      given.order == expected.order)
    return;
  throw Error(std::string(operation) + ": expected " + name + " " + shape(expected) + ", got " +
              shape(given));
}

/// Requires one d x d matrix per group.
template <typename T, typename U>
void require_per_group(const char* operation, const char* name, const Activations<T>& x,
                       const Matrices<U>& given) {
  const Matrices<U> expected = contiguous<U>(nullptr, x.groups, x.group_size());
  if (given.batch == expected.batch && given.n == expected.n) return;
  throw Error(std::string(operation) + ": expected " + name + " of shape " + shape(expected) +
              ", got " + shape(given));
}

}  // namespace keel
