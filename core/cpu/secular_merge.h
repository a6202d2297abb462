#pragma once

// What merges of divide and conquer share, for a tridiagonal (eigh_large_divide.h) and a bidiagonal matrix
// (svd_divide.h): the roots of a rank-1 update, and new vectors as products of old ones. Vectors are rows.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "eigh_large_kernels.h"
#include "formulas/secular.h"
#include "keel/executor.h"

namespace keel::cpu {

/// A team of one thread, for secular_root. Its sums are vector loops: secular_value below is
/// overloaded for it. The only other sum that secular_root needs is that of the squared weights,
/// which is given.
template <typename T>
struct SecularTeam {
  T squares;
  static int lane() { return std::numeric_limits<int>::max(); }
  static int lanes() { return 1; }
  static bool all(bool done) { return done; }
  T sum(T) const { return squares; }
};
template <typename T>
SecularValue<T> secular_value(const SecularTeam<T>&, int count, int split, const T* pole,
                              const T* z, T origin, T offset) {
  T value[4];
  large_kernels<T>().secular_value(count, split, pole, z, origin, offset, value);
  return {value[0], value[1], value[2], value[3]};
}

/// Merges the parts [first, seam) and [seam, end).
template <typename T>
class SecularMerge {
 protected:
  enum Side : char { kLeft = 1, kRight = 2, kBoth = 3 };

  SecularMerge(std::int64_t first, std::int64_t seam, std::int64_t end)
      : first_(first),
        seam_(seam),
        count_(int(end - first)),
        left_(seam - first),
        right_(end - seam),
        side_(std::size_t(count_), kLeft),
        pole_(std::size_t(count_ + kReach)),
        weight_(pole_.size()),
        source_(std::size_t(count_)),
        dropped_pole_(std::size_t(count_)),
        dropped_source_(std::size_t(count_)) {}

  /// After a rotation of two vectors each is nonzero where one of them was.
  void mark_rotated(const SecularRotation<T>& rotation) {
    Side& a = side_[std::size_t(rotation.dropped)];
    Side& b = side_[std::size_t(rotation.kept)];
    a = b = Side(a | b);
  }

  void pad_poles() {
    std::fill(pole_.begin() + alive_, pole_.end(), std::numeric_limits<T>::infinity());
    std::fill(weight_.begin() + alive_, weight_.end(), T(0));
  }

  /// Of diag(pole) + rho z z^T.
  void find_roots(T rho, const Executor& executor) {
    origin_.resize(std::size_t(alive_));
    offset_.resize(std::size_t(alive_));
    refined_.assign(pole_.size(), T(0));
    T squares = 0;
    for (const T z : weight_) squares += z * z;
    in_pieces(executor, alive_, 16, 64, [&](int first, int end) {
      for (int i = first; i < end; ++i) {
        const auto root = secular_root(SecularTeam<T>{squares}, true, alive_, i, pole_.data(),
                                       weight_.data(), rho);
        origin_[std::size_t(i)] = root.origin;
        offset_[std::size_t(i)] = root.offset;
      }
    });
    in_pieces(executor, alive_, 32, 64, [&](int first, int end) {
      large_kernels<T>().secular_weights(first, end, alive_, pole_.data(), weight_.data(),
                                         origin_.data(), offset_.data(), refined_.data());
    });
  }
  T pole_of(int root) const { return pole_[std::size_t(origin_[std::size_t(root)])]; }

  /// Sorts the poles by side: left part only, both, right part only. So both halves of the
  /// product can skip their zeros. Returns the order.
  std::vector<int> group() {
    std::vector<int> order(static_cast<std::size_t>(alive_));
    std::iota(order.begin(), order.end(), 0);
    const auto place = [&](int k) {
      const Side side = side_[std::size_t(source_[std::size_t(k)])];
      return side == kLeft ? 0 : side == kBoth ? 1 : 2;
    };
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return place(a) < place(b); });
    grouped_pole_.assign(pole_.size(), std::numeric_limits<T>::infinity());
    grouped_refined_.assign(pole_.size(), T(0));
    grouped_source_.resize(order.size());
    for (std::size_t q = 0; q < order.size(); ++q) {
      const auto k = std::size_t(order[q]);
      grouped_pole_[q] = pole_[k];
      grouped_refined_[q] = refined_[k];
      grouped_source_[q] = source_[k];
      left_only_ += place(order[q]) == 0;
      right_only_ += place(order[q]) == 2;
    }
    return order;
  }

  /// The new vectors, in place of the old ones, whose rows begin at `vectors` and are `stride` apart:
  /// rows of `update` times packed old ones, then those set aside.
  void multiply(T* vectors, const T* update, std::int64_t stride, const T* packed_left,
                const T* packed_right, const T* set_aside, const Executor& executor) const {
    const LargeKernels<T>& kernel = large_kernels<T>();
    const std::int64_t pieces = pieces_of(count_, 24, 64);
    executor(pieces, [&](std::int64_t p) {
      const int first = int(alive_ * p / pieces), some = int(alive_ * (p + 1) / pieces) - first;
      const T* const rows = update + first * stride;
      T* const to = vectors + first * stride;
      kernel.multiply_packed(some, left_, alive_ - right_only_, rows, stride, packed_left,
                             to + first_, stride, Into::set);
      kernel.multiply_packed(some, right_, alive_ - left_only_, rows + left_only_, stride,
                             packed_right, to + seam_, stride, Into::set);
      for (std::int64_t i = dropped_ * p / pieces; i < dropped_ * (p + 1) / pieces; ++i)
        std::copy_n(set_aside + i * count_, count_, vectors + (alive_ + i) * stride + first_);
    });
  }

  template <typename Body>
  static void in_pieces(const Executor& executor, int count, int least, int most,
                        const Body& body) {
    const std::int64_t pieces = pieces_of(count, least, most);
    executor(pieces,
             [&](std::int64_t p) { body(int(count * p / pieces), int(count * (p + 1) / pieces)); });
  }

  std::int64_t first_, seam_;
  int count_;
  std::int64_t left_, right_;  // sizes of the two parts
  std::vector<Side> side_;     // the part in which a vector is nonzero
  int alive_ = 0, dropped_ = 0;
  std::vector<T> pole_, weight_;
  std::vector<int> source_;
  std::vector<T> dropped_pole_;
  std::vector<int> dropped_source_, origin_;
  std::vector<T> offset_, refined_;
  int left_only_ = 0, right_only_ = 0;
  std::vector<T> grouped_pole_, grouped_refined_;
  std::vector<int> grouped_source_;
};

}  // namespace keel::cpu
