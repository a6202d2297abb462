#pragma once

#include <cmath>
#include <limits>

#include "on_device.h"
#include "support/batch.h"

namespace keel::testing {

/// Matrices on the device with NaN in the gaps between rows and between matrices. Reading a gap spoils the result;
/// writing one shows in back().
template <typename T>
class BatchOnDevice {
 public:
  explicit BatchOnDevice(const Batch<T>& m, std::int64_t gap = 0)
      : batch_(m.batch),
        n_(m.n),
        row_(m.n + gap),
        step_(m.n * row_ + 3 * gap),
        device_(spread(m)) {}
  Matrices<T> view() { return {device_.data(), batch_, n_, row_, step_}; }
  Batch<T> back() {
    const std::vector<T> all = device_.back();
    Batch<T> m(batch_, n_);
    for (std::int64_t k = 0; k < std::int64_t(all.size()); ++k) {
      const std::int64_t b = k / step_, i = k % step_ / row_, j = k % step_ % row_;
      if (i < n_ && j < n_)
        m(b, i, j) = all[std::size_t(k)];
      else
        EXPECT_TRUE(std::isnan(all[std::size_t(k)])) << "written between the matrices";
    }
    return m;
  }

 private:
  std::vector<T> spread(const Batch<T>& m) const {
    std::vector<T> all(std::size_t(batch_ * step_), std::numeric_limits<T>::quiet_NaN());
    for (std::int64_t b = 0; b < batch_; ++b)
      for (std::int64_t i = 0; i < n_; ++i)
        for (std::int64_t j = 0; j < n_; ++j)
          all[std::size_t(b * step_ + i * row_ + j)] = m(b, i, j);
    return all;
  }
  std::int64_t batch_, n_, row_, step_;
  OnDevice<T> device_;
};

}  // namespace keel::testing
