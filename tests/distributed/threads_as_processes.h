#pragma once

// Processes simulated by threads: their messages are added up in memory, in rank order.

#include <atomic>
#include <barrier>
#include <functional>
#include <stdexcept>
#include <thread>

#include "libtorch/layers_support.h"

namespace keel::test {

class ThreadGroup {
 public:
  explicit ThreadGroup(std::int64_t size) : slots_(std::size_t(size)), turn_(size) {}

  nn::ProcessGroup member(std::int64_t rank) {
    return {rank, std::int64_t(slots_.size()), [this, rank](Tensor& t) { sum(rank, t); }};
  }
  /// Called by a rank that stops: the others no longer wait for it.
  void leave(std::int64_t rank) {
    slots_[std::size_t(rank)] = Tensor();
    turn_.arrive_and_drop();
  }

  std::atomic<std::int64_t> sums = 0;     ///< so far, counted once for all members
  std::atomic<std::int64_t> numbers = 0;  ///< in them
  std::atomic<std::int64_t> bytes = 0;

 private:
  void sum(std::int64_t rank, Tensor& tensor) {
    slots_[std::size_t(rank)] = tensor.clone();
    turn_.arrive_and_wait();
    Tensor total = torch::zeros_like(tensor);
    bool all = true;
    for (const Tensor& one : slots_)
      if (one.defined())
        total += one;
      else
        all = false;
    if (rank == 0) {
      ++sums;
      numbers += tensor.numel();
      bytes += std::int64_t(tensor.nbytes());
    }
    turn_.arrive_and_wait();
    if (!all) throw std::runtime_error("a member has left");
    tensor.copy_(total);
  }

  std::vector<Tensor> slots_;
  std::barrier<> turn_;
};

/// Runs body(rank, group) as that many processes would. An exception in one fails the test.
inline void as_processes(ThreadGroup& group, std::int64_t size,
                         const std::function<void(std::int64_t, const nn::ProcessGroup&)>& body) {
  std::vector<std::thread> threads;
  for (std::int64_t rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      try {
        body(rank, group.member(rank));
      } catch (const std::exception& error) {
        group.leave(rank);
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace keel::test
