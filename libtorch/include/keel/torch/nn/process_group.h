#pragma once

// The processes that share a layer's batch. This header does not include c10d, whose headers are heavy and missing from
// some builds of LibTorch. Only code that passes a group needs them.

#include <c10/util/intrusive_ptr.h>
#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace keel::nn {

/// The processes whose batches a layer treats as one batch in training:
///
///     #include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
///     c10::intrusive_ptr<c10d::ProcessGroup> group = ...;
///     keel::nn::ZcaWhitening layer({.num_features = 64, .process_group = group});
///
/// A value type: copies refer to the same processes.
class ProcessGroup {
 public:
  /// Replaces a tensor by its sum over all processes. The result must be bitwise the same on each. For CUDA tensors it is
  /// enough that the current stream sees the sum.
  using Sum = std::function<void(torch::Tensor&)>;

  /// This process alone.
  ProcessGroup() = default;

  /// Any of c10d's groups or backends. Null means this process alone.
  template <typename Group>
  ProcessGroup(const c10::intrusive_ptr<Group>& group) {
    if (!group) return;
    *this = ProcessGroup(group->getRank(), group->getSize(), [group](torch::Tensor& tensor) {
      std::vector<torch::Tensor> tensors{tensor};
      group->allreduce(tensors)->wait();
    });
  }

  /// Any other implementation of the sum. `process` is this process's rank.
  ProcessGroup(std::int64_t process, std::int64_t size, Sum sum)
      : process_(process), size_(size), sum_(std::move(sum)) {}

  std::int64_t process() const { return process_; }
  std::int64_t size() const { return size_; }
  void sum(torch::Tensor& tensor) const {
    if (sum_) sum_(tensor);
  }

 private:
  std::int64_t process_ = 0, size_ = 1;
  Sum sum_;
};

}  // namespace keel::nn
