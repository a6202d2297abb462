#pragma once

// Symmetric matrix -> tridiagonal. The rows of the matrix are distributed round-robin over the
// blocks that share it, which keep them in shared memory. Every block computes every reflector
// itself. A column costs one exchange of mail (for each row, its product with the new reflector and
// its entry of the next column) and three barriers of the block. As in middle/reduce.cuh, a
// reflection is applied during the product of the next one.
//
// Let y be the rest of column k. The reflector is x = y - beta e_(k+1), so A x = A y - beta A
// e_(k+1), and the second term is the next column. So rows are multiplied by y before its length is
// known.

#include "cuda/eigh/block/team.cuh"
#include "cuda/eigh/wide/mail.cuh"
#include "cuda/eigh/wide/parts.cuh"
#include "cuda/threads.cuh"
#include "formulas/householder.h"
#include "formulas/scale.h"
#include "keel/matrices.h"

namespace keel::cuda {

/// A row's entries of the last product, the last reflector, and the column before that reflection.
template <typename T>
struct WidePending {
  T product, v, column;
};

template <typename T>
struct WideReduceFront {
  static constexpr int kWarps = 16;
  alignas(16) T along[kWarps], tail[kWarps];
  WidePending<T> own, next;  ///< rows k and k + 1
  int busy[kWarps];
};

/// PER: columns per thread.
template <typename T, int PER>
struct WideReducer {
  static constexpr int kWarps = WideReduceFront<T>::kWarps, kThreads = 32 * kWarps;
  static constexpr int kPiece = 16 / int(sizeof(T));
  const WideShape shape;
  WideParts<T> parts;
  WideReduceFront<T>& s;
  T *v, *w, *y, *shared;  ///< the last reflection (v, w), the column, the rows
  int part, rows, in_global, warp, lane;
  bool writes;

  __device__ WideReducer(unsigned char* memory, const WideShape& given, int block,
                         const WideParts<T>& target)
      : shape(given),
        parts(target),
        s(*reinterpret_cast<WideReduceFront<T>*>(memory)),
        v(reinterpret_cast<T*>(memory + front_bytes())),
        w(v + shape.stride),
        y(w + shape.stride),
        shared(y + shape.stride),
        part(block),
        rows((shape.n - block + shape.blocks - 1) / shape.blocks),
        in_global(max(0, rows - shape.shared_rows)),
        warp(int(threadIdx.x) / 32),
        lane(int(threadIdx.x) % 32),
        writes(block == (shape.n - 1) % shape.blocks) {}

  KEEL_HOST_DEVICE static constexpr int front_bytes() {
    return int(sizeof(WideReduceFront<T>) + 15) / 16 * 16;
  }
  static constexpr std::int64_t bytes(int stride, int shared_rows) {
    return front_bytes() + std::int64_t(sizeof(T)) * stride * (3 + shared_rows);
  }

  __device__ int row_of(int i) const { return part + shape.blocks * i; }
  /// ALL_SHARED: all rows are in shared memory, known at compile time.
  template <bool ALL_SHARED = false>
  __device__ T* entries(int i) const {
    if (!ALL_SHARED && i < in_global) return parts.update + std::int64_t(row_of(i)) * shape.stride;
    return shared + (ALL_SHARED ? i : i - in_global) * shape.stride;
  }

  /// Puts rows without a neighbour (dead channels) last, where no reflector touches them.
  __device__ void order_rows(int* order) {
    const int first = int(threadIdx.x) * PER;
    int alive = 0;
#pragma unroll
    for (int i = 0; i < PER; ++i)
      alive += first + i < shape.n && parts.has_neighbour[first + i] != 0;
    int before = alive;
    for (int distance = 1; distance < 32; distance *= 2) {
      const int other = __shfl_up_sync(0xffffffffu, before, distance);
      if (lane >= distance) before += other;
    }
    if (lane == 31) s.busy[warp] = before;
    before -= alive;
    __syncthreads();
    int busy = 0;
    for (int other = 0; other < kWarps; ++other) {
      before += other < warp ? s.busy[other] : 0;
      busy += s.busy[other];
    }
#pragma unroll
    for (int i = 0; i < PER; ++i) {
      const int r = first + i;
      if (r < shape.n) {
        const bool lives = parts.has_neighbour[r] != 0;
        order[lives ? before : busy + r - before] = r;
        before += lives;
      }
    }
    __syncthreads();
    if (writes)
      for (int r = int(threadIdx.x); r < shape.n; r += kThreads) parts.order[r] = order[r];
  }

  /// Loads this block's rows, in that order and scaled.
  __device__ void load(const T* source, std::int64_t row_stride, Mail<T>* box, unsigned stamp) {
    const UnitScale<T> scale(from_bits(*parts.largest));
    int* const order = reinterpret_cast<int*>(w);
    order_rows(order);
    for (int i = warp; i < rows; i += kWarps) {
      T* const target = entries(i);
      const int row = order[row_of(i)];
#pragma unroll 4
      for (int c = lane; c < shape.stride; c += 32) {
        const int column = c < shape.n ? order[c] : 0;
        const bool exists = scale.finite && c < shape.n;
        target[c] =
            exists ? scale.down(source[max(row, column) * row_stride + min(row, column)]) : T(0);
      }
      __syncwarp();
      if (lane == 0) box[row_of(i)].send(T(0), target[0], stamp);
    }
    __syncthreads();
  }

  /// Applies the last reflection to ROWS rows, every kWarps-th from `first` on, and multiplies them
  /// by y.
  template <bool ALL_SHARED, int ROWS>
  __device__ __forceinline__ void work_rows(int k, int first, Mail<T>* box, unsigned stamp) {
    T* row[ROWS];
    T row_v[ROWS], row_w[ROWS], sums[ROWS];
    bool exists[ROWS];
#pragma unroll
    for (int g = 0; g < ROWS; ++g) {
      const int i = first + kWarps * g;
      exists[g] = i < rows;
      row[g] = entries<ALL_SHARED>(min(i, rows - 1));
      const int r = row_of(min(i, rows - 1));
      row_v[g] = v[r];
      row_w[g] = w[r];
      sums[g] = 0;
    }
    constexpr int kChunk = 32 * kPiece;
#pragma unroll 2
    for (int c = (k + 1) / kChunk * kChunk + lane * kPiece; c < shape.stride; c += kChunk) {
      const auto piece_v = pack_at<kPiece>(v + c), piece_w = pack_at<kPiece>(w + c),
                 piece_y = pack_at<kPiece>(y + c);
#pragma unroll
      for (int g = 0; g < ROWS; ++g) {
        if (ROWS > 2 && !exists[g]) continue;
        auto a = pack_at<kPiece>(row[g] + c);
#pragma unroll
        for (int e = 0; e < kPiece; ++e) {
          a.at[e] = fma(-row_v[g], piece_w.at[e], fma(-row_w[g], piece_v.at[e], a.at[e]));
          sums[g] = fma(a.at[e], piece_y.at[e], sums[g]);
        }
        pack_at<kPiece>(row[g] + c) = a;
      }
    }
    const T sum = warp_sums(lane, sums);
    __syncwarp();
    constexpr int kShare = 32 / ROWS;
    const int i = first + kWarps * (lane / kShare);
    if (lane % kShare == 0 && i < rows)
      box[row_of(i)].send(sum, entries<ALL_SHARED>(i)[k + 1], stamp);
  }

  /// The rest of the matrix: all but the first `dead` rows of this block.
  template <bool ALL_SHARED>
  __device__ __forceinline__ void work_all_rows(int k, int dead, Mail<T>* box, unsigned stamp) {
    for (int first = dead + warp; first < rows;) {
      const int left = (rows - first + kWarps - 1) / kWarps;
      if (left == 1) {
        work_rows<ALL_SHARED, 1>(k, first, box, stamp);
        return;
      }
      if (left == 2) {
        work_rows<ALL_SHARED, 2>(k, first, box, stamp);
        return;
      }
      work_rows<ALL_SHARED, 4>(k, first, box, stamp);
      first += 4 * kWarps;
    }
  }

  __device__ T sum_over_warps(const T* partial) const {
    T sum = 0;
#pragma unroll
    for (int other = 0; other < kWarps; ++other) sum += partial[other];
    return sum;
  }

  __device__ void reduce(Mail<T>* boxes, unsigned stamp) {
    const int n = shape.n, stride = shape.stride, first = int(threadIdx.x);
    T own_y[PER] = {};
    T alpha = 0, beta = 0, scale = 0;  // of the last reflection
    int dead = 0;                      // rows of this block up to k
    // A block whose last row is finished sends nothing more, and no other block waits for it.
    const int last = row_of(rows - 1), end = last == n - 1 ? n : last;
    for (int k = 0; k < end; ++k, ++stamp) {
      T product[PER], column[PER], last_v[PER];
      if (k == row_of(dead)) ++dead;
      receive(boxes + (stamp & 1) * stride, first, kThreads, k, n, stamp, product, column);
      T along = 0;
#pragma unroll
      for (int i = 0; i < PER; ++i) {
        const int c = first + kThreads * i;
        last_v[i] = scale == 0 || c < k ? T(0) : (c == k ? alpha - beta : own_y[i]);
        if (writes && k > 0 && c < stride)
          parts.reflectors[std::int64_t(k - 1) * stride + c] = last_v[i];
        product[i] = scale * fma(-beta, column[i], product[i]);
        along = fma(product[i], last_v[i], along);
        if (c == k) s.own = {product[i], last_v[i], column[i]};
        if (c == k + 1) s.next = {product[i], last_v[i], column[i]};
      }
      along = warp_sum(along);
      if (lane == 0) s.along[warp] = along;
      __syncthreads();
      const T half = scale / 2 * sum_over_warps(s.along);
      // The last reflection is A - v w^T - w v^T with w = p - half v. Apply it to column k.
      const auto w_of = [&](T p, T x) { return fma(-half, x, p); };
      const T v_k = s.own.v, w_k = w_of(s.own.product, v_k);
      const auto reflected = [&](T a, T x, T x_w) { return fma(-x, w_k, fma(-x_w, v_k, a)); };
      T tail = 0;
#pragma unroll
      for (int i = 0; i < PER; ++i) {
        const int c = first + kThreads * i;
        const T last_w = w_of(product[i], last_v[i]);
        const T reduced = reflected(column[i], last_v[i], last_w);
        if (writes && c == k) parts.diagonal[k] = reduced;
        own_y[i] = c > k && c < n ? reduced : T(0);
        if (c > k + 1) tail = fma(own_y[i], own_y[i], tail);
        if (c < stride) {
          v[c] = last_v[i];
          w[c] = last_w;
          y[c] = own_y[i];
        }
      }
      if (k + 1 == n) break;
      alpha = reflected(s.next.column, s.next.v, w_of(s.next.product, s.next.v));
      __syncthreads();
      Mail<T>* const next_box = boxes + ((stamp + 1) & 1) * stride;
      if (in_global == 0)
        work_all_rows<true>(k, dead, next_box, stamp + 1);
      else
        work_all_rows<false>(k, dead, next_box, stamp + 1);
      // Compute the reflector's length while the mail is in flight.
      tail = warp_sum(tail);
      if (lane == 0) s.tail[warp] = tail;
      __syncthreads();
      const Householder<T> made(alpha, sum_over_warps(s.tail));
      beta = made.beta;
      scale = made.scale;
      if (writes && threadIdx.x == 0) {
        parts.coupling[k] = beta;
        parts.reflector_scale[k] = scale;
      }
    }
    __syncthreads();  // the next matrix reuses the memory
  }
};

/// Launched cooperatively, because the blocks of a matrix wait for each other. A group of blocks
/// takes every groups-th matrix. A group has four mailboxes: two for the current matrix and two for
/// the next one, which a block that has finished may already begin.
template <typename T, int PER>
__global__ void __launch_bounds__(WideReducer<T, PER>::kThreads, 1)
    wide_reduce_kernel(Matrices<const T> matrices, std::int64_t first, int count, WideShape shape,
                       unsigned char* memory, std::int64_t bytes, const bool* wanted,
                       Mail<T>* mail) {
  const int group = int(blockIdx.x) / shape.blocks, groups = int(gridDim.x) / shape.blocks;
  unsigned stamp = 1;
  int pair = 0;  // of mailboxes
  for (int index = group; index < count; index += groups) {
    if (wanted != nullptr && !wanted[index]) continue;
    WideReducer<T, PER> reducer(shared_memory(), shape, int(blockIdx.x) % shape.blocks,
                                WideParts<T>(memory + index * bytes, shape.stride));
    Mail<T>* const boxes = mail + std::int64_t(4 * group + 2 * pair) * shape.stride;
    reducer.load(matrices[first + index], matrices.row_stride, boxes + (stamp & 1) * shape.stride,
                 stamp);
    reducer.reduce(boxes, stamp);
    stamp += unsigned(shape.n) + 1;
    pair ^= 1;
  }
}

}  // namespace keel::cuda
