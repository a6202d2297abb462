#pragma once

// The rank policies on the device. One warp walks down the spectrum, which is in shared or global
// memory.

#include "cuda/gradient_rule/device_rule.cuh"
#include "cuda/matrix/small.cuh"
#include "rank_policy.h"

namespace keel::cuda {

/// sum + the terms of lanes 0, 1, ..., 31, added sequentially as on the CPU. `reached` is the sum
/// up to and including this lane's term.
__device__ inline double add_in_order(double sum, double term, double& reached) {
  const int lane = int(threadIdx.x) % 32;
#pragma unroll 8
  for (int k = 0; k < 32; ++k) {
    sum += __shfl_sync(0xffffffffu, term, k);
    if (k == lane) reached = sum;
  }
  return sum;
}

/// The rank if eigenvalue `reaching` reaches the energy, and those that are equal to it have its
/// fate. Without them it is `kept`.
template <typename T>
__device__ int with_equals(const PlainRankPolicy& policy, const PlainRankPolicy::Bounds<T>& bounds,
                           int kept, int reaching, int most, const T* l, const T* quotients) {
  constexpr unsigned kAll = 0xffffffffu;
  const int lane = int(threadIdx.x) % 32;
  if (!policy.keep_reaching) {
    int dropped = 0;
    for (int first = 0; first < kept; first += 32) {
      const int i = first + lane;
      const bool equal = i < kept && l[i] <= l[reaching] + bounds.same;
      dropped += __popc(__ballot_sync(kAll, equal));
    }
    return kept - dropped;
  }
  for (int first = kept; first < most; first += 32) {
    const int i = first + lane;
    const bool goes_on =
        i < most && l[i] >= l[reaching] - bounds.same &&
        !policy.stops_before(bounds, l[i], policy.by_rayleigh ? quotients[i] : T(0));
    const unsigned stops = ~__ballot_sync(kAll, goes_on);
    if (stops != 0) return first + __ffs(int(stops)) - 1;
  }
  return most;
}

/// The rank that the policy chooses, in every lane of the calling warp. `quotients` are only read
/// by_rayleigh.
template <typename T>
__device__ int rank_by_warp(const PlainRankPolicy& policy, int n, const T* l, const T* quotients) {
  constexpr unsigned kAll = 0xffffffffu;
  const int lane = int(threadIdx.x) % 32;
  double total = 0, reached = 0;
  // The partial sums of the first 64 eigenvalues, kept so that they need not be computed again.
  constexpr int kKept = 2;
  double reached_before[kKept] = {}, total_before = 0;
  bool bad = false;
  for (int first = 0; first < n; first += 32) {
    const int i = first + lane;
    const T own = i < n ? l[i] : T(0);
    bad = bad || isnan(own);
    if (!policy.by_energy) continue;
    total = add_in_order(total, policy.energy_of(own), reached);
    if (first == 0) reached_before[0] = reached;
    if (first == 32) reached_before[1] = reached;
    if (first < 32 * kKept) total_before = total;
  }
  if (__any_sync(kAll, bad)) return n < 1 ? n : 1;
  const int most = policy.count < n ? int(policy.count) : n;
  const auto bounds = policy.bounds(n, n > 0 ? largest_magnitude(n, l, kNone<T>) : T(0));
  int kept = most;
  double sum = total_before;
  for (int first = 0; first < n; first += 32) {
    const int i = first + lane;
    const T own = i < n ? l[i] : T(0);
    if (policy.by_energy && first >= 32 * kKept)
      sum = add_in_order(sum, policy.energy_of(own), reached);
    else
      reached = first == 0 ? reached_before[0] : reached_before[1];
    const T quotient = policy.by_rayleigh && i < n ? quotients[i] : T(0);
    const bool before = i < n && policy.stops_before(bounds, own, quotient);
    const bool here = before || policy.enough(reached, total);
    const unsigned stops = __ballot_sync(kAll, i < n && here);
    if (stops == 0) continue;
    const int stop = __ffs(int(stops)) - 1;
    const bool drop_it = __shfl_sync(kAll, int(before), stop) || !policy.keep_reaching;
    kept = first + stop + (drop_it ? 0 : 1);
    if (!policy.literal && !__shfl_sync(kAll, int(before), stop))
      kept = with_equals(policy, bounds, kept, first + stop, most, l, quotients);
    break;
  }
  return kept < 1 ? (n < 1 ? n : 1) : kept;
}

/// quotients[i] -= sum_{k<i} quotients[k] (v_k . v_i)^2, in place and in this order, by the calling
/// warp. This turns v_i^T M v_i into the Rayleigh quotient after deflating M by the earlier
/// vectors. `overlaps` is V^T V.
template <typename T>
__device__ void deflate_by_warp(int n, const T* overlaps, std::int64_t stride, T* quotients) {
  const int lane = int(threadIdx.x) % 32;
  for (int first = 0; first < n; first += 32) {
    const int i = first + lane;
    T own = i < n ? quotients[i] : T(0);
    if (i < n)
#pragma unroll 4
      for (int k = 0; k < first; ++k) {
        const T overlap = overlaps[k * stride + i];
        own -= quotients[k] * overlap * overlap;
      }
    __syncwarp();
#pragma unroll 4
    for (int k = 0; k < 32; ++k) {
      const T earlier = __shfl_sync(0xffffffffu, own, k);
      if (k < lane && i < n) {
        const T overlap = overlaps[(first + k) * stride + i];
        own -= earlier * overlap * overlap;
      }
    }
    if (i < n) quotients[i] = own;
    __syncwarp();
  }
}

namespace small {

/// quotients = the Rayleigh quotients of Algorithm 1. m is the full M, v = V and u = V^T. p is
/// overwritten.
template <typename T, int N>
__device__ void rayleigh_quotients(const SmallTeam<T, N>& team, const T* m, const T* v, const T* u,
                                   T* p, T* quotients) {
  constexpr int kStride = SmallTeam<T, N>::kStride;
  multiply(team, team.n, m, v, p);
  if (team.thread() < team.n) {
    T sum = 0;
#pragma unroll 8
    for (int r = 0; r < team.n; ++r)
      sum += v[r * kStride + team.thread()] * p[r * kStride + team.thread()];
    quotients[team.thread()] = sum;
  }
  team.sync();
  multiply(team, team.n, u, v, p);
  if (team.thread() < 32) deflate_by_warp(team.n, p, kStride, quotients);
  team.sync();
}

}  // namespace small

}  // namespace keel::cuda
