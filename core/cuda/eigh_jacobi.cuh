#pragma once

// Symmetric eigenproblems of n <= 64 by one-sided Jacobi with the matrix in registers.
//
// A covariance M + shift I = L L^T, the shift being rounding-sized, and the columns of L are turned
// against each other until all are orthogonal: L Q = U diag(sigma). Then M U = U diag(sigma^2 - shift),
// so there is no second matrix of vectors to turn. Round r pairs column j with column j xor r, which
// visits every pair once a sweep with no index arrays and no moving of storage. A matrix whose
// factorisation meets a pivot that is not positive (it is not a covariance) is solved by two-sided
// Jacobi in shared memory instead.

#include <cstdint>

#include "keel/eigh.h"

namespace keel::cuda {

template <typename T>
inline constexpr T kEpsilon = sizeof(T) == 4 ? T(1.1920928955078125e-07) : T(2.220446049250313e-16);

inline constexpr int kMaxSweeps = 30;

/// About 1 / x and 1 / sqrt(x), for what need not be exact: any angle makes a valid rotation.
__device__ inline float rough_inverse(float x) { return __fdividef(1.0f, x); }
__device__ inline double rough_inverse(double x) { return 1 / x; }
__device__ inline float rough_inverse_root(float x) { return rsqrtf(x); }
__device__ inline double rough_inverse_root(double x) { return rsqrt(x); }

/// The threads that share one matrix: SPLIT for each of N columns, each holding N / SPLIT entries. They
/// are consecutive threads of a warp, or a block of their own.
template <typename T, int N, int SPLIT>
struct Team {
  static constexpr int kSize = N * SPLIT, kRows = N / SPLIT;
  static constexpr bool kBlock = kSize > 32;
  // Columns cross from warp to warp through memory, their squares in the last row. Two buffers in turn:
  // with one barrier a round nobody is more than a round ahead, so what is read is not yet overwritten.
  static constexpr int kExchange = kBlock ? (kRows + 1) * kSize : 0;
  T* exchange;
  int thread;  // 0 .. kSize - 1

  __device__ int column() const { return thread / SPLIT; }
  __device__ int first_row() const { return thread % SPLIT * kRows; }

  __device__ void sync() const {
    if constexpr (kBlock)
      __syncthreads();
    else
      __syncwarp();
  }

  __device__ T near(T value, int r) const { return __shfl_xor_sync(0xffffffffu, value, r); }

  /// The sum over the threads of a column.
  __device__ T sum_column(T value) const {
#pragma unroll
    for (int r = 1; r < SPLIT; r *= 2) value += near(value, r);
    return value;
  }

  template <typename Op>
  __device__ T reduce(T value, Op op) const {
    for (int r = 1; r < (kBlock ? 32 : kSize); r *= 2) value = op(value, near(value, r));
    if constexpr (kBlock) {
      __syncthreads();
      if (thread % 32 == 0) exchange[thread / 32] = value;
      __syncthreads();
      value = exchange[0];
      for (int warp = 1; warp < kSize / 32; ++warp) value = op(value, exchange[warp]);
      __syncthreads();
    }
    return value;
  }
  __device__ T largest(T value) const {
    return reduce(value, [](T x, T y) { return fmax(x, y); });
  }

  /// Whether any thread of this matrix says so.
  __device__ bool any(bool flag) const {
    if constexpr (kBlock) {
      return __syncthreads_or(flag);
    } else {
      const unsigned members = kSize == 32 ? 0xffffffffu
                                           : ((1u << (kSize & 31)) - 1u)
                                                 << (threadIdx.x & 31 & ~(kSize - 1));
      return (__ballot_sync(0xffffffffu, flag) & members) != 0;
    }
  }
  /// Whether any thread of this warp or block says so: matrices that are done wait for the others.
  __device__ static bool anyone(bool flag) {
    if constexpr (kBlock)
      return __syncthreads_or(flag);
    else
      return __any_sync(0xffffffffu, flag);
  }

  /// This thread's part of the column `r` away, and the square of that column's length.
  __device__ __forceinline__ T partner(int r, const T (&own)[kRows], T square,
                                       T (&other)[kRows]) const {
    if constexpr (kBlock) {
      if (r * SPLIT >= 32) {
        T* const buffer = exchange + (r & 1) * kExchange;
#pragma unroll
        for (int i = 0; i < kRows; ++i) buffer[i * kSize + thread] = own[i];
        buffer[kRows * kSize + thread] = square;
        __syncthreads();
        const int from = thread ^ (r * SPLIT);
#pragma unroll
        for (int i = 0; i < kRows; ++i) other[i] = buffer[i * kSize + from];
        return buffer[kRows * kSize + from];
      }
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) other[i] = near(own[i], r * SPLIT);
    return near(square, r * SPLIT);
  }

  __device__ __forceinline__ T dot(const T (&x)[kRows], const T (&y)[kRows]) const {
    constexpr int kSums = kRows < 4 ? kRows : 4;
    T sum[kSums] = {};
#pragma unroll
    for (int i = 0; i < kRows; ++i) sum[i % kSums] += x[i] * y[i];
#pragma unroll
    for (int k = 1; k < kSums; ++k) sum[0] += sum[k];
    return sum_column(sum[0]);
  }
};

/// Turns the columns of L until they are orthogonal to rounding; false if that took too many sweeps.
/// A team that is not `active` only keeps its neighbours company.
template <typename T, int N, int SPLIT>
__device__ __forceinline__ bool orthogonalise(const Team<T, N, SPLIT>& team, int n, bool active,
                                              T (&own)[N / SPLIT]) {
  constexpr T negligible = kEpsilon<T> / 2;
  T other[N / SPLIT];
  for (int sweep = 0; sweep < kMaxSweeps; ++sweep) {
    T square = team.dot(own, own);
    T overlap = 0, angle = 0;  // the largest (cosine of two columns)^2 and |tangent| of this sweep
    for (int r = 1; r < N; ++r) {
      const int partner = team.column() ^ r;
      const T theirs = team.partner(r, own, square, other);
      const T d = team.dot(own, other);
      const bool first = team.column() < partner;
      const T difference = first ? theirs - square : square - theirs;
      const T product = square * theirs;
      if (active && partner < n && d * d > product * (negligible * negligible)) {
        // cos and sin of half the angle whose tangent is 2 d / difference, two roots deep: the latency
        // of this chain is most of a round. Then one correction to unit length.
        const T inverse_h = rough_inverse_root(difference * difference + 4 * d * d);
        const T half = T(0.5) + T(0.5) * fabs(difference) * inverse_h;  // cos^2
        const T inverse_c = rough_inverse_root(half);
        T c = half * inverse_c, s = copysign(inverse_h * inverse_c, difference) * d;
        const T t = s * inverse_c;
        const T correction = T(0.5) - T(0.5) * (c * c + s * s);
        c += correction * c;
        s += correction * s;
        if (first) s = -s;
#pragma unroll
        for (int i = 0; i < N / SPLIT; ++i) own[i] = c * own[i] + s * other[i];
        square += first ? -t * d : t * d;
        overlap = fmax(overlap, d * d * rough_inverse(product));
        angle = fmax(angle, fabs(t));
      }
    }
    // Turning x into y undoes x's orthogonality to z by (cosine of y and z) * (sine of the angle).
    overlap = team.largest(overlap);
    angle = team.largest(angle);
    active = active && overlap * angle * angle > kEpsilon<T> * kEpsilon<T>;
    if (!Team<T, N, SPLIT>::anyone(active)) return true;
  }
  return !active;
}

/// Shared memory of one matrix. Rows are padded to a multiple of 16 bytes off the banks' period.
template <typename T, int N, int SPLIT>
struct Storage {
  static constexpr int kRow = N + 16 / int(sizeof(T));
  alignas(16) T matrix[N * kRow];
  alignas(16) T factor[N * kRow];
  T turns[2 * N];
  T exchange[2 * Team<T, N, SPLIT>::kExchange + 1];
};

/// L of the matrix in `factor`, whose columns are still to be divided by their pivots' roots; returns
/// the inverse root of this thread's column's pivot, or 0 where some pivot was not positive.
template <typename T, int N, int SPLIT>
__device__ T cholesky(const Team<T, N, SPLIT>& team, int n, T* factor) {
  constexpr int kRow = Storage<T, N, SPLIT>::kRow;
  const int column = team.column();
  T own = 0;
  bool positive = true;
  for (int k = 0; k < n; ++k) {
    team.sync();
    const T pivot = factor[k * kRow + k];
    positive = positive && pivot > 0;
    if (column == k) own = pivot;
    if (column > k && column < n) {
      const T scale = factor[column * kRow + k] / pivot;
      for (int i = column + team.thread % SPLIT; i < n; i += SPLIT)
        factor[i * kRow + column] -= factor[i * kRow + k] * scale;
    }
  }
  team.sync();
  return positive ? 1 / sqrt(own) : T(0);
}

/// Two-sided Jacobi in shared memory, for what is not positive definite: diagonalises `matrix` and
/// leaves the eigenvectors in `vectors`. The rare case, so plain and slow: every round turns columns,
/// vectors and rows in memory.
template <typename T, int N, int SPLIT>
__device__ __noinline__ bool two_sided(const Team<T, N, SPLIT> team, int n, bool active, T* matrix,
                                       T* vectors, T* turns) {
  constexpr int kRow = Storage<T, N, SPLIT>::kRow;
  const int column = team.column(), part = team.thread % SPLIT;
  T scale = 0;
  if (active && column < n)
    for (int i = part; i < n; i += SPLIT) {
      vectors[i * kRow + column] = i == column ? T(1) : T(0);
      scale = fmax(scale, fabs(matrix[i * kRow + column]));
    }
  scale = team.largest(scale);
  for (int sweep = 0; sweep < kMaxSweeps; ++sweep) {
    T largest_off = 0, angle = 0;
    for (int r = 1; r < N; ++r) {
      team.sync();
      const int p = column, q = column ^ r;
      const bool lead = active && p < q && q < n;
      T c = 1, s = 0;
      if (lead) {
        const T off = matrix[q * kRow + p];
        if (fabs(off) > kEpsilon<T> / 2 * scale) {
          const T zeta = (matrix[q * kRow + q] - matrix[p * kRow + p]) / (2 * off);
          const T t = copysign(T(1), zeta) / (fabs(zeta) + sqrt(1 + zeta * zeta));
          c = 1 / sqrt(1 + t * t);
          s = c * t;
          largest_off = fmax(largest_off, fabs(off));
          angle = fmax(angle, fabs(t));
        }
        if (part == 0) {
          turns[p] = c;
          turns[N + p] = s;
        }
      }
      team.sync();
      if (lead && s != 0)
        for (int i = part; i < n; i += SPLIT)
          for (T* target : {matrix, vectors}) {
            const T x = target[i * kRow + p], y = target[i * kRow + q];
            target[i * kRow + p] = c * x - s * y;
            target[i * kRow + q] = s * x + c * y;
          }
      team.sync();
      if (active && column < n)
        for (int i = part; i < n; i += SPLIT) {
          const int j = i ^ r;
          if (j < i || j >= n) continue;
          const T ci = turns[i], si = turns[N + i];
          const T x = matrix[i * kRow + column], y = matrix[j * kRow + column];
          matrix[i * kRow + column] = ci * x - si * y;
          matrix[j * kRow + column] = si * x + ci * y;
        }
    }
    largest_off = team.largest(largest_off);
    angle = team.largest(angle);
    active = active && largest_off * angle > kEpsilon<T> / 2 * scale;
    if (!Team<T, N, SPLIT>::anyone(active)) break;
  }
  team.sync();
  return !active;
}

template <typename T, int N, int SPLIT, int TEAMS>
__global__ void __launch_bounds__(N* SPLIT* TEAMS)
    jacobi_kernel(Matrices<const T> matrices, T* values, Matrices<T> vectors, EighStatus* status) {
  extern __shared__ __align__(16) unsigned char memory[];
  using Members = Team<T, N, SPLIT>;
  constexpr int kRow = Storage<T, N, SPLIT>::kRow, kRows = Members::kRows;
  const int n = int(matrices.n);
  const int slot = threadIdx.x / Members::kSize;
  const std::int64_t index = std::int64_t(blockIdx.x) * TEAMS + slot;
  const bool exists = index < matrices.batch;
  auto& shared = reinterpret_cast<Storage<T, N, SPLIT>*>(memory)[slot];
  const Members team{shared.exchange, int(threadIdx.x) % Members::kSize};
  const int column = team.column(), top_row = team.first_row();
  const T* source = matrices[exists ? index : 0];

  // This thread's part of the lower triangle, the largest magnitude, and whether all is finite.
  T own[kRows];
  T size = 0, broken = 0;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int row = top_row + i;
    own[i] = exists && row < n && column <= row ? source[row * matrices.row_stride + column] : T(0);
    size = fmax(size, fabs(own[i]));
    broken += own[i] * T(0);  // 0 for finite numbers, NaN for the rest
  }
  size = team.largest(size);
  const bool finite = !team.any(broken != 0);
  int exponent = 0;
  if (finite) frexp(size, &exponent);
  T square = 0;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int row = top_row + i;
    if (row >= n || column > row) continue;
    const T x = finite ? ldexp(own[i], -exponent) : T(0);
    shared.matrix[row * kRow + column] = shared.matrix[column * kRow + row] = x;
    square += (row == column ? 1 : 2) * x * x;
  }
  square = team.reduce(square, [](T x, T y) { return x + y; });
  team.sync();
  const T shift = sqrt(square) * (4 * kEpsilon<T> * sqrt(T(n)));
  if (column < n)
    for (int i = team.thread % SPLIT; i < n; i += SPLIT)
      shared.factor[i * kRow + column] =
          shared.matrix[i * kRow + column] + (i == column ? shift : T(0));

  const T inverse = cholesky<T, N, SPLIT>(team, n, shared.factor);
  const bool covariance = !team.any(column < n && !(inverse > 0));
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int row = top_row + i;
    own[i] = covariance && row < n && column <= row ? shared.factor[row * kRow + column] * inverse
                                                    : T(0);
  }
  const bool done = orthogonalise<T, N, SPLIT>(team, n, covariance, own) && covariance;

  const bool other_way = exists && finite && !done;
  bool converged = true;
  if (Members::anyone(other_way))
    converged =
        two_sided<T, N, SPLIT>(team, n, other_way, shared.matrix, shared.factor, shared.turns);
  T value = 0;
  if (other_way) {
    value = column < n ? shared.matrix[column * kRow + column] : T(0);
#pragma unroll
    for (int i = 0; i < kRows; ++i)
      own[i] = top_row + i < n && column < n ? shared.factor[(top_row + i) * kRow + column] : T(0);
  }
  const T length = team.dot(own, own);
  const T scale = length > 0 ? 1 / sqrt(length) : T(0);
#pragma unroll
  for (int i = 0; i < kRows; ++i) own[i] *= scale;
  // The Rayleigh quotient on the matrix itself frees the value of what the turning rounded.
  team.sync();
  if (!other_way) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) shared.factor[(top_row + i) * kRow + column] = own[i];
  }
  team.sync();
  T quotient = 0;
  if (column < n && !other_way)
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      if (top_row + i >= n) continue;
      T product = 0;
      for (int k = 0; k < n; ++k)
        product += shared.matrix[(top_row + i) * kRow + k] * shared.factor[k * kRow + column];
      quotient += own[i] * product;
    }
  quotient = team.sum_column(quotient);
  if (!other_way) value = quotient;

  // The place of this value among all, equal ones in the order of the columns.
  shared.turns[column] = value;
  team.sync();
  int place = 0;
  for (int k = 0; k < n; ++k) {
    const T their = shared.turns[k];
    place += their > value || (their == value && k < column);
  }
  // The entry of largest magnitude, the first such one, is positive.
  T top = 0, entry = 1;
#pragma unroll
  for (int i = 0; i < kRows; ++i)
    if (fabs(own[i]) > top) {
      top = fabs(own[i]);
      entry = own[i];
    }
#pragma unroll
  for (int r = 1; r < SPLIT; r *= 2) {
    const T their_top = team.near(top, r), their_entry = team.near(entry, r);
    const bool they_come_first = (team.thread & r) != 0;
    if (their_top > top || (their_top == top && they_come_first)) {
      top = their_top;
      entry = their_entry;
    }
  }
  if (!exists || column >= n) return;
  if (!finite) place = column;
  if (top_row == 0) values[index * n + place] = finite ? ldexp(value, exponent) : T(NAN);
  T* target = vectors[index];
#pragma unroll
  for (int i = 0; i < kRows; ++i)
    if (top_row + i < n)
      target[(top_row + i) * vectors.row_stride + place] =
          finite ? (entry < 0 ? -own[i] : own[i]) + T(0) : T(NAN);
  if (team.thread == 0 && status != nullptr)
    status[index] = !finite     ? EighStatus::not_finite
                    : converged ? EighStatus::converged
                                : EighStatus::by_fallback;
}

template <typename T, int N, int SPLIT, int TEAMS>
cudaError_t launch_jacobi(Matrices<const T> matrices, T* values, Matrices<T> vectors,
                          EighStatus* status, cudaStream_t stream) {
  constexpr int bytes = int(sizeof(Storage<T, N, SPLIT>)) * TEAMS;
  const auto kernel = jacobi_kernel<T, N, SPLIT, TEAMS>;
  if constexpr (bytes > 48 * 1024) {
    const cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (error != cudaSuccess) return error;
  }
  const auto blocks = unsigned((matrices.batch + TEAMS - 1) / TEAMS);
  kernel<<<blocks, N * SPLIT * TEAMS, bytes, stream>>>(matrices, values, vectors, status);
  return cudaGetLastError();
}

}  // namespace keel::cuda
