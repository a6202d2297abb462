#pragma once

namespace keel::cuda {

/// Four neighbours of a row, moved at once.
template <typename T>
struct alignas(16) Four {
  T at[4];
};
template <typename T>
__device__ __forceinline__ Four<T>& four(T* from) {
  return *reinterpret_cast<Four<T>*>(from);
}
template <typename T>
__device__ __forceinline__ Four<T> four(const T* from) {
  return *reinterpret_cast<const Four<T>*>(from);
}

}  // namespace keel::cuda
