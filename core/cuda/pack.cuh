#pragma once

namespace keel::cuda {

/// Neighbours in memory that are read or written at once. The memory is aligned to them, to 16 bytes where they
/// take more.
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
