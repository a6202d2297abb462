#pragma once

// Decomposes the leaves, pieces torn out of the tridiagonal matrix, one block each.

#include "cuda/eigh/block/divide.cuh"
#include "cuda/eigh/wide/parts.cuh"
#include "formulas/order.h"

namespace keel::cuda {

template <typename T>
__global__ void __launch_bounds__(Team<T, kWideLeaf<T>>::kSize)
    wide_leaves_kernel(WideShape shape, unsigned char* memory, std::int64_t bytes,
                       const bool* wanted) {
  if (wanted != nullptr && !wanted[blockIdx.y]) return;
  constexpr int kLeaf = kWideLeaf<T>;
  using Members = Team<T, kLeaf>;
  auto& s = *reinterpret_cast<Storage<T, kLeaf>*>(shared_memory());
  const WideParts<T> parts(memory + std::int64_t(blockIdx.y) * bytes, shape.stride);
  const Members team{int(threadIdx.x)};
  const int base = int(blockIdx.x) * kLeaf, count = min(kLeaf, shape.n - base);
  const auto link = [&](int i) { return i >= 0 && i + 1 < shape.n ? parts.coupling[i] : T(0); };
  for (int i = team.thread(); i < count; i += Members::kSize) {
    T torn = 0;
    if (i == 0) torn += fabs(link(base - 1));
    if (i == kLeaf - 1) torn += fabs(link(base + i));
    s.diagonal[i] = parts.diagonal[base + i] - torn;
    s.coupling[i] = i + 1 < count ? parts.coupling[base + i] : T(0);
  }
  team.sync();
  divide_and_conquer(team, count, s);
  const int j = team.column();
  T own[Members::kOwn];
  team.load(s.vectors + j * Members::kRow, own);
  if (j < count) team.store(parts.vectors + std::int64_t(base + j) * shape.stride + base, own);
  const T value = j < count ? s.value[j] : T(0);
  const int place =
      team.sum(count_before<false>(s.value, count, j, value, team.lane(), team.lanes()));
  if (j < count && team.lane() == 0) {
    parts.value[base + j] = value;
    parts.sorted[base + place] = base + j;
  }
}

}  // namespace keel::cuda
