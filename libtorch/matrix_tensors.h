#pragma once

// Converts tensors to the core's views of matrices, and allocates outputs for device and meta kernels.

#include <initializer_list>
#include <vector>

#include "keel/matrices.h"
#include "types.h"

namespace keel::ops {

/// Whether (..., m, n) can be read in place as one batch of row-major matrices.
inline bool is_one_batch(const Tensor& tensor) {
  const std::int64_t dims = tensor.dim();
  if (tensor.numel() == 0) return true;
  if (tensor.size(-1) > 1 && tensor.stride(-1) != 1) return false;
  std::int64_t next = -1;
  for (std::int64_t d = dims - 3; d >= 0; --d) {
    if (tensor.size(d) == 1) continue;
    if (next >= 0 && tensor.stride(d) != tensor.stride(next) * tensor.size(next)) return false;
    next = d;
  }
  return true;
}

/// `tensor` itself if the core can read it in place, otherwise a contiguous copy. Meta tensors are returned unchanged:
/// they are never read, and their sizes may be symbolic.
inline Tensor readable(const Tensor& tensor) {
  return tensor.is_meta() || is_one_batch(tensor) ? tensor : tensor.contiguous();
}

/// The core's view of a readable() tensor, empty if it is undefined.
template <typename T>
Rectangles<T> rectangles(const Tensor& tensor) {
  if (!tensor.defined()) return {};
  const std::int64_t m = tensor.size(-2), n = tensor.size(-1);
  std::int64_t batch = 1, batch_stride = m * n;
  for (std::int64_t d = tensor.dim() - 3; d >= 0; --d) {
    // The innermost batch dimension with more than one entry sets the stride between matrices.
    if (batch == 1 && tensor.size(d) != 1) batch_stride = tensor.stride(d);
    batch *= tensor.size(d);
  }
  using Element = std::remove_const_t<T>;
  Element* data;
  if constexpr (kIsComplex<Element>)
    data = reinterpret_cast<Element*>(tensor.data_ptr<c10::complex<RealOf<Element>>>());
  else
    data = tensor.data_ptr<Element>();
  return {data, batch, m, n, m > 1 ? tensor.stride(-2) : n, batch_stride};
}

template <typename T>
Matrices<T> matrices(const Tensor& tensor) {
  const Rectangles<T> any = rectangles<T>(tensor);
  return {any.data, any.batch, any.columns, any.row_stride, any.batch_stride};
}

template <typename T>
T* data_or_null(const Tensor& tensor) {
  return tensor.defined() ? tensor.data_ptr<std::remove_const_t<T>>() : nullptr;
}

inline Tensor empty_matrices(const Tensor& like) { return like.new_empty_symint(like.sym_sizes()); }

inline Tensor empty_values(const Tensor& matrices) {
  return matrices.new_empty_symint(matrices.sym_sizes().slice(0, matrices.dim() - 1),
                                   matrices.options().dtype(type_of_values(matrices)));
}

/// An uninitialised (..., sizes) tensor with the leading dimensions of (..., m, n) matrices.
inline Tensor empty_beside(const Tensor& matrices, std::initializer_list<c10::SymInt> sizes) {
  std::vector<c10::SymInt> shape = matrices.sym_sizes().slice(0, matrices.dim() - 2).vec();
  shape.insert(shape.end(), sizes);
  return matrices.new_empty_symint(shape);
}

/// (..., m, k), (..., k) and (..., k, n) with k = min(m, n).
inline Tensors<3> empty_svd(const Tensor& matrix) {
  const c10::SymInt m = matrix.sym_size(-2), n = matrix.sym_size(-1), k = m < n ? m : n;
  return {empty_beside(matrix, {m, k}), empty_beside(matrix, {k}).to(type_of_values(matrix)),
          empty_beside(matrix, {k, n})};
}

inline Tensor empty_rank(const Tensor& matrices) {
  return matrices.new_empty_symint(matrices.sym_sizes().slice(0, matrices.dim() - 2),
                                   matrices.options().dtype(at::kLong));
}

}  // namespace keel::ops
