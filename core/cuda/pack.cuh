#pragma once

namespace keel::cuda {

/// COUNT adjacent elements that are read or written at once. Aligned to their total size, but to at
/// most 16 bytes.
template <typename T, int COUNT = 4>
struct alignas(sizeof(T) * COUNT < 16 ? sizeof(T) * COUNT : 16) Pack {
  T at[COUNT];
};

template <int COUNT = 4, typename T>
__device__ __forceinline__ Pack<T, COUNT>& pack_at(T* place) {
  return *reinterpret_cast<Pack<T, COUNT>*>(place);
}
template <int COUNT = 4, typename T>
__device__ __forceinline__ const Pack<T, COUNT>& pack_at(const T* place) {
  return *reinterpret_cast<const Pack<T, COUNT>*>(place);
}

}  // namespace keel::cuda
