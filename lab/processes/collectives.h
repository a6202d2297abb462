#pragma once

// What the lab asks of c10d. c10d_*.cpp where LibTorch has it, c10d_none.cpp elsewhere.

#include <torch/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lab/processes/mailbox.h"

namespace keel::lab {

/// Told of every bucket of gradients: that its sum begins, and (CPU) that it failed, on any thread.
struct SumWatch {
  std::function<void()> begun, failed;
};

/// Adds up the gradients of all processes while backward still runs: c10d's Reducer, with its buckets.
class GradientSum {
 public:
  virtual ~GradientSum() = default;
  /// At the beginning of every step.
  virtual void before_forward() = 0;
  /// After which the parameters' gradients, when backward returns, are the sum over all processes.
  virtual void before_backward() = 0;
};

/// A group of processes: Gloo's on CPUs, NCCL's on GPUs. Every call is one of all processes, in the same
/// order. On a GPU nothing is waited for: the work is queued.
class Collectives {
 public:
  virtual ~Collectives() = default;
  virtual void sum(torch::Tensor& tensor) = 0;
  /// Replaces the tensor by process 0's.
  virtual void broadcast(torch::Tensor& tensor) = 0;
  virtual std::unique_ptr<GradientSum> gradient_sum(const std::vector<torch::Tensor>& parameters,
                                                    SumWatch watch) = 0;
  virtual std::string name() const = 0;  ///< gloo, nccl
};

/// The store through which processes find each other.
class Store {
 public:
  virtual ~Store() = default;
  /// Each with a connection of its own.
  virtual std::unique_ptr<Mailbox> mailbox() = 0;
  virtual std::unique_ptr<Collectives> collectives(const Place& place, torch::Device device,
                                                   std::chrono::milliseconds timeout) = 0;
};
/// Process 0 keeps it, unless an agent does. Throws where there is none within the timeout.
std::unique_ptr<Store> open_store(const Place& place, std::chrono::milliseconds timeout);

}  // namespace keel::lab
