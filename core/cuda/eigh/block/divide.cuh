#pragma once

// Eigendecomposition of a tridiagonal matrix by divide and conquer (Cuppen 1981). The matrix is
// torn into 4 x 4 parts, which are merged in pairs, all pairs of a level at once. A merge is a
// rank-1 update of a diagonal matrix (formulas/secular.h).

#include "cuda/eigh/block/merge_terms.cuh"

namespace keel::cuda {

/// The shape of each thread's tile in a product of whole matrices.
template <typename T, int N>
struct TileShape {
  static constexpr int kEntries = N / Team<T, N>::kLanes;
  static constexpr int kRows = kEntries >= 32 ? 8 : (kEntries >= 4 ? 4 : kEntries);
  static constexpr int kColumns = kEntries / kRows;
  static constexpr int kLargest = kRows > kColumns ? kRows : kColumns;
};

/// This thread's tile of sum_k a_k b_k^T, where a_k and b_k are rows k of two matrices in shared
/// memory. Neighbours have the same row of tiles, their neighbours the same column: 16 threads that
/// load 16 bytes each are served at once if threads i and i ^ 1, or i and i ^ 2, read the same.
template <typename T, int N>
struct Tile {
  using Shape = TileShape<T, N>;
  static constexpr int kRow = Team<T, N>::kRow, kAcross = N / Shape::kRows;
  int top, left;
  T sum[Shape::kRows][Shape::kColumns] = {};

  __device__ explicit Tile(const Team<T, N>& team)
      : top(team.thread() / 2 % kAcross * Shape::kRows),
        left((team.thread() / (2 * kAcross) * 2 + team.thread() % 2) * Shape::kColumns) {}

  __device__ void add_products(int begin, int end, const T* a, const T* b) {
#pragma unroll 4
    for (int k = begin; k < end; ++k) {
      const auto x = pack_at<Shape::kRows>(a + k * kRow + top);
      const auto y = pack_at<Shape::kColumns>(b + k * kRow + left);
#pragma unroll
      for (int i = 0; i < Shape::kRows; ++i)
#pragma unroll
        for (int j = 0; j < Shape::kColumns; ++j) sum[i][j] += x.at[i] * y.at[j];
    }
  }
  /// Column by column: each is a row of memory.
  __device__ void store_columns(T* to) const {
#pragma unroll
    for (int j = 0; j < Shape::kColumns; ++j) {
      auto& place = pack_at<Shape::kRows>(to + (left + j) * kRow + top);
#pragma unroll
      for (int i = 0; i < Shape::kRows; ++i) place.at[i] = sum[i][j];
    }
  }
};

/// Multiplies the vectors by the update, within the diagonal blocks of the merges.
template <typename T, int N>
__device__ void multiply_by_update(const Team<T, N>& team, int n, int half, Storage<T, N>& s) {
  constexpr int kLargest = TileShape<T, N>::kLargest;
  Tile<T, N> tile(team);
  // All of these are powers of two.
  const int block = 2 * half > kLargest ? 2 * half : kLargest;
  const bool inside = ((tile.top ^ tile.left) & -block) == 0;
  // A row is nonzero only in the columns of its own half.
  const int reach = half >= kLargest ? half : block;
  const int begin = tile.top & -reach, end = min(begin + reach, n);
  if (inside) tile.add_products(begin, end, s.vectors, s.update);
  team.sync();
  if (inside) tile.store_columns(s.vectors);
  team.sync();
}

/// A set of numbers from 0 to SIZE - 1, one bit each. All threads of a warp hold the same.
template <int SIZE>
struct SmallSet {
  static constexpr int kWords = (SIZE + 31) / 32;
  unsigned word[kWords] = {};

  SmallSet() = default;
  /// The numbers below `bound` with holds(i). The whole warp takes part, with the same bound.
  template <typename Holds>
  __device__ SmallSet(int lane_of_warp, int bound, const Holds& holds) {
#pragma unroll
    for (int w = 0; w < kWords; ++w)
      if (32 * w < bound)
        word[w] = __ballot_sync(0xffffffffu,
                                lane_of_warp < bound - 32 * w && holds(lane_of_warp + 32 * w));
  }
  __device__ void insert(int i) {
#pragma unroll
    for (int w = 0; w < kWords; ++w)
      if (i / 32 == w) word[w] |= 1u << (i % 32);
  }
  __device__ bool contains(int i) const {
    bool found = false;
#pragma unroll
    for (int w = 0; w < kWords; ++w)
      if (i / 32 == w) found = word[w] >> (i % 32) & 1;
    return found;
  }
  __device__ int count() const {
    int sum = 0;
#pragma unroll
    for (int w = 0; w < kWords; ++w) sum += __popc(word[w]);
    return sum;
  }
  __device__ int count_below(int i) const {
    int sum = 0;
#pragma unroll
    for (int w = 0; w < kWords; ++w) sum += __popc(word[w] & below(i - 32 * w));
    return sum;
  }
  /// The least member from i on; SIZE or more if there is none.
  __device__ int next(int i) const {
    int found = 32 * kWords;
#pragma unroll
    for (int w = kWords - 1; w >= 0; --w) {
      const unsigned rest = word[w] & ~below(i - 32 * w);
      if (rest != 0) found = 32 * w + __ffs(int(rest)) - 1;
    }
    return found;
  }

 private:
  /// A word with the bits below i, which may be outside of it.
  __device__ static unsigned below(int i) { return i >= 32 ? ~0u : (1u << (i > 0 ? i : 0)) - 1; }
};

/// Sorts the poles and deflates: sets aside those that the update does not move, and, if two of the
/// others are too close to tell apart, removes one of them by a rotation. entry(j, row) is an entry
/// of vector j. `half` is a power of two.
template <typename T, int N, typename Entry>
__device__ Merge<T> prepare_merge(const Team<T, N>& team, int n, int half, const Entry& entry,
                                  MergeStorage<T, N>& s) {
  using Set = SmallSet<N>;
  // The whole matrix has unit size. Below this bound a part of it is negligible, and squares would
  // underflow.
  constexpr T tiny = kEpsilon<T> * kEpsilon<T>;
  const int j = team.column(), lane = team.lane();
  Merge<T> m;
  m.base = j & -(2 * half);
  m.count = max(0, min(2 * half, n - m.base));
  m.seam = m.base + half;
  const bool member = j < n, joined = m.seam < n;
  const T link = joined ? s.coupling[m.seam - 1] : T(0);
  m.rho = 2 * fabs(link);
  m.sign = copysign(T(1), link);
  T own = 0, z = 0;
  if (member) own = s.value[j];
  if (member && joined) {
    z = j < m.seam ? entry(j, m.seam - 1) : m.sign * entry(j, m.seam);
    z *= T(0.70710678118654752);
  }
  int place = 0;
  T size = m.rho;
  team.for_each_of(s.value + m.base, 2 * half, m.count, j - m.base, [&](T other, bool earlier) {
    place += int(other < own) | (int(other == own) & int(earlier));  // no branches
    size = fmax(size, fabs(other));
  });
  place = team.sum(place);
  size = team.largest(size);
  const T tolerance = fmax(2 * kEpsilon<T> * size, tiny);
  if (member && lane == 0) {
    const int at = m.base + place;
    s.sorted_value[at] = own;
    s.sorted_weight[at] = z;
    s.sorted_source[at] = m.rho * fabs(z) > tolerance ? j : ~j;
  }
  team.sync();

  // From here on, numbers are places in the sorted order of this merge. Every warp has the columns
  // of one merge only, and finds out about the whole merge itself, which takes no barriers.
  static_assert(Team<T, N>::kSize >= 32);
  const int at = j - m.base, lane_of_warp = team.thread() % 32;
  const T *const value = s.sorted_value + m.base, *const weight = s.sorted_weight + m.base;
  const int* const source = s.sorted_source + m.base;
  T own_pole = 0, own_weight = 0;
  int own_source = 0;
  if (member) {
    own_pole = value[at];
    own_weight = weight[at];
    own_source = source[at];
  }
  const Set moving(lane_of_warp, m.count, [&](int i) { return source[i] >= 0; });
  const Set close(lane_of_warp, m.count, [&](int i) {
    const int next = moving.next(i + 1);
    return moving.contains(i) && next < m.count &&
           too_close(tolerance, value[next] - value[i], weight[i], weight[next]);
  });
  Set dropped;
  m.rotations = 0;
  for (int low = close.next(0); low < m.count; low = close.next(low + 1)) {
    // A rotation changes the upper pole, which may bring it close to the next one, or away from it.
    T low_pole = value[low], low_weight = weight[low];
    int low_source = source[low];
    int next = moving.next(low + 1);
    T next_value = value[next], next_weight = weight[next];  // it exists: `low` is close to it
    int next_source = source[next];
    while (next < m.count) {
      T pole = next_value, z = next_weight, dropped_pole;
      const int pole_source = next_source, after = moving.next(next + 1),
                within = min(after, m.count - 1);
      next_value = value[within];  // is loaded while this one is compared
      next_weight = weight[within];
      next_source = source[within];
      SecularRotation<T> rotation;
      if (!drop_if_close(tolerance, low_pole, low_weight, low_source, pole, z, pole_source,
                         dropped_pole, rotation))
        break;
      if (at == low) own_pole = dropped_pole;
      if (at == 0 && lane == 0) s.rotation[m.base + m.rotations] = rotation;
      dropped.insert(low);
      ++m.rotations;
      low = next;
      next = after;
      low_pole = pole;
      low_weight = z;
      low_source = pole_source;
    }
    if (at == low) {
      own_pole = low_pole;
      own_weight = low_weight;
    }
  }
  const int moves = moving.count(), moves_before = moving.count_below(at),
            dropped_before = dropped.count_below(at);
  m.alive = moves - m.rotations;
  if (member && lane == 0) {
    const bool close_one = dropped.contains(at);
    if (own_source >= 0 && !close_one) {
      const int to = m.base + moves_before - dropped_before;
      s.pole[to] = own_pole;
      s.weight[to] = own_weight;
      s.source[to] = own_source;
    } else {  // the close ones follow those that do not move
      const int to = m.base + (close_one ? m.count - moves + dropped_before : at - moves_before);
      s.dropped_pole[to] = own_pole;
      s.dropped_source[to] = close_one ? own_source : ~own_source;
    }
  }
  team.sync();
  return m;
}

/// Finds the root of column team.column(). All roots, and the weights that fit them, go to s.
/// `terms`: the team, or its MergeTerms.
template <typename T, int N, typename Terms>
__device__ SecularRoot<T> find_roots(const Terms& terms, const Merge<T>& m, MergeStorage<T, N>& s) {
  constexpr bool kHasTerms = std::is_same_v<Terms, MergeTerms<T, N>>;
  const int j = terms.column(), i = j - m.base;
  const bool active = i < m.alive, writes = active && terms.lane() == 0;
  const int root_of = active ? i : max(m.alive - 1, 0);
  const T* const pole = s.pole + m.base;
  const SecularRoot<T> root =
      secular_root(terms, active, m.alive, root_of, pole, s.weight + m.base, m.rho);
  T* const at = s.sorted_value;  // no longer needed
  if (writes) {
    s.origin[j] = root.origin;
    s.offset[j] = root.offset;
    if constexpr (kHasTerms) at[j] = pole[root.origin];
  }
  terms.sync();
  T refined;
  if constexpr (kHasTerms)
    refined = secular_weight(terms, m.alive, root_of, pole, s.weight + m.base, at + m.base,
                             s.offset + m.base);
  else
    refined = secular_weight(terms, m.alive, root_of, pole, s.weight + m.base, s.origin + m.base,
                             s.offset + m.base);
  if (writes) s.refined[j] = refined;
  terms.sync();
  return root;
}

template <typename T, int N>
__device__ T merged_value(const Merge<T>& m, int j, const SecularRoot<T>& root,
                          const MergeStorage<T, N>& s) {
  return j - m.base < m.alive ? s.pole[m.base + root.origin] + root.offset
                              : s.dropped_pole[j - m.alive];
}

/// Applies the rotations of close pairs to a column of the update.
template <typename T, typename MERGE_STORAGE>
__device__ void undo_rotations(const Merge<T>& m, const MERGE_STORAGE& s, T* column, int stride) {
  for (int t = m.rotations - 1; t >= 0; --t) {
    const SecularRotation<T> rotation = s.rotation[m.base + t];
    T& dropped = column[rotation.dropped * stride];
    T& kept = column[rotation.kept * stride];
    const T x = dropped, y = kept;
    dropped = rotation.c * x - rotation.s * y;
    kept = rotation.s * x + rotation.c * y;
  }
}

/// Fills column j of the matrix that maps the old vectors to the new ones; it must be zero before.
/// `lanes` share the column. If it does not exist they only take part in the shuffles.
template <typename T, typename Lanes, typename MERGE_STORAGE>
__device__ void fill_update_column(const Lanes& lanes, const Merge<T>& m, int j, bool exists,
                                   const SecularRoot<T>& root, const MERGE_STORAGE& s, T* column,
                                   int stride) {
  const T* const pole = s.pole + m.base;
  const bool active = exists && j - m.base < m.alive;
  T squares = 0;
  const T origin = active ? pole[root.origin] : T(0);
  if (active)
#pragma unroll 4
    for (int k = lanes.lane(); k < m.alive; k += Lanes::lanes()) {
      const T entry = s.refined[m.base + k] * short_inverse((pole[k] - origin) - root.offset);
      column[s.source[m.base + k] * stride] = entry;
      squares += entry * entry;
    }
  const T scale = short_inverse_root(lanes.sum(squares));
  if (active)
#pragma unroll 4
    for (int k = lanes.lane(); k < m.alive; k += Lanes::lanes())
      column[s.source[m.base + k] * stride] *= scale;
  else if (exists && lanes.lane() == 0)
    column[s.dropped_source[j - m.alive] * stride] = 1;
  __syncwarp();
  if (exists && lanes.lane() == 0) undo_rotations(m, s, column, stride);
}

/// The same by a team with its MergeTerms.
template <typename T, int N>
__device__ void fill_update_column(const MergeTerms<T, N>& terms, const Merge<T>& m, bool exists,
                                   const SecularRoot<T>& root, const MergeStorage<T, N>& s,
                                   T* column) {
  using Terms = MergeTerms<T, N>;
  constexpr int kAtOnce = Terms::kAtOnce;
  const int j = terms.column();
  const bool active = exists && j - m.base < m.alive;
  const T origin = active ? s.pole[m.base + root.origin] : T(0);
  T entry[Terms::kOwn], squares = 0;
  terms.for_each([&](int first, const typename Terms::Some& some) {
    T refined[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      refined[i] = s.refined[min(m.base + terms.index(first + i), N - 1)];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      entry[first + i] = short_inverse((some.pole[i] - origin) - root.offset);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const bool counts = active && terms.index(first + i) < m.alive;
      entry[first + i] = counts ? refined[i] * entry[first + i] : T(0);
      squares += entry[first + i] * entry[first + i];
    }
  });
  const T scale = short_inverse_root(terms.sum(squares));
  terms.for_each([&](int first, const typename Terms::Some&) {
    int source[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      source[i] = s.source[min(m.base + terms.index(first + i), N - 1)];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      if (active && terms.index(first + i) < m.alive)
        column[source[i] * Team<T, N>::kRow] = scale * entry[first + i];
  });
  if (exists && !active && terms.lane() == 0)
    column[s.dropped_source[j - m.alive] * Team<T, N>::kRow] = 1;
  __syncwarp();
  if (exists && terms.lane() == 0) undo_rotations(m, s, column, Team<T, N>::kRow);
}

/// Computes the merged values and the matrix that maps the old vectors to the new ones.
template <typename T, int N>
__device__ void solve_merge(const Team<T, N>& team, int n, int half, const Merge<T>& m,
                            Storage<T, N>& s) {
  const int j = team.column();
  const T zeros[Team<T, N>::kOwn] = {};
  team.store(s.update + j * Team<T, N>::kRow, zeros);  // a barrier follows in find_roots
  const MergeTerms<T, N> terms(team, 2 * half, m, s);
  const SecularRoot<T> root = find_roots(terms, m, s);
  fill_update_column(terms, m, j < n, root, s, s.update + j);
  if (j < n && team.lane() == 0) s.value[j] = merged_value(m, j, root, s);
  team.sync();
}

/// Leaves the values of the tridiagonal matrix in s.value, unsorted, and its vectors in the columns
/// of s.vectors.
template <typename T, int N>
__device__ void divide_and_conquer(const Team<T, N>& team, int n, Storage<T, N>& s) {
  constexpr int kOwn = Team<T, N>::kOwn, kRow = Team<T, N>::kRow;
  const int j = team.column(), base = j & ~3;
  // Every thread of four columns solves their 4 x 4 part and keeps the row of vectors that it
  // needs.
  const auto link = [&](int i) { return i >= 0 && i + 1 < n ? s.coupling[i] : T(0); };
  Quad<T> quad(
      [&](int r, int c) {
        if (r != c) return c == r + 1 ? link(base + r) : T(0);
        const T torn = r == 0 ? fabs(link(base - 1)) : (r == 3 ? fabs(link(base + 3)) : T(0));
        return base + r < n ? s.diagonal[base + r] - torn : T(0);
      },
      team.lane());
  quad.solve();
  const T own[kOwn] = {};
  team.store(s.vectors + j * kRow, own);
  __syncwarp();
  s.vectors[j * kRow + base + team.lane()] = quad.row_entry(j - base);
  if (team.lane() == 0) s.value[j] = quad.value(j - base);
  team.sync();
  for (int half = 4; half < n; half *= 2) {
    const Merge<T> merge = prepare_merge(
        team, n, half, [&](int k, int row) { return s.vectors[k * kRow + row]; }, s);
    solve_merge(team, n, half, merge, s);
    multiply_by_update(team, n, half, s);
  }
}

}  // namespace keel::cuda
