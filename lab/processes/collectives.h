#pragma once

// The lab's interface to c10d. Implemented in c10d_*.cpp if LibTorch has it, otherwise in c10d_none.cpp.

#include <torch/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lab/processes/mailbox.h"
#include "lab/processes/place.h"

namespace keel::lab {

/// Called on any thread when the sum of a bucket of gradients begins and, on the CPU, when it fails.
struct SumWatch {
  std::function<void()> begun, failed;
};

/// Adds up the gradients of all processes during backward: c10d's Reducer, with its buckets.
class GradientSum {
 public:
  virtual ~GradientSum() = default;
  /// Call it at the beginning of every step.
  virtual void before_forward() = 0;
  /// Prepares backward. After backward the gradients are the sums over all processes.
  virtual void before_backward() = 0;
};

/// A process group: Gloo on CPUs, NCCL on GPUs. All processes must make the same calls in the same order. On a GPU
/// the work is queued, without synchronisation.
class Collectives {
 public:
  virtual ~Collectives() = default;
  virtual void sum(torch::Tensor& tensor) = 0;
  /// Replaces the tensor by rank 0's.
  virtual void broadcast(torch::Tensor& tensor) = 0;
  virtual std::unique_ptr<GradientSum> gradient_sum(const std::vector<torch::Tensor>& parameters,
                                                    SumWatch watch) = 0;
  virtual std::string name() const = 0;  ///< gloo, nccl
};

/// The store through which processes find each other.
class Store {
 public:
  virtual ~Store() = default;
  /// A mailbox with its own connection.
  virtual std::unique_ptr<Mailbox> mailbox() = 0;
  virtual std::unique_ptr<Collectives> collectives(const Place& place, torch::Device device,
                                                   std::chrono::milliseconds timeout) = 0;
};
/// Rank 0 hosts the store, unless an agent does. Throws if there is no store within the timeout.
std::unique_ptr<Store> open_store(const Place& place, std::chrono::milliseconds timeout);

}  // namespace keel::lab
