#pragma once

// Numbers and queued work on the device, for tests.

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "keel/stream.h"

namespace keel::testing {

inline void check(cudaError_t error) { ASSERT_EQ(error, cudaSuccess) << cudaGetErrorString(error); }

/// Whether to leave out sizes above `most`: under compute-sanitizer, where kernels take hundreds of times as long.
/// scripts/test-gpu puts the tool's name into the environment variable KEEL_TEST_SMALL.
inline bool is_too_large(std::int64_t size, std::int64_t most) {
  return size > most && std::getenv("KEEL_TEST_SMALL") != nullptr;
}

inline bool is_under_racecheck() {
  const char* const tool = std::getenv("KEEL_TEST_SMALL");
  return tool != nullptr && std::string_view(tool) == "racecheck";
}

/// A copy of the given numbers. It starts `skip` numbers after the aligned address from the allocator.
template <typename T>
class OnDevice {
 public:
  explicit OnDevice(const std::vector<T>& numbers, std::size_t skip = 0)
      : count_(numbers.size()), skip_(skip) {
    check(cudaMalloc(reinterpret_cast<void**>(&memory_), sizeof(T) * (count_ + skip + 1)));
    set(numbers);
  }
  ~OnDevice() { cudaFree(memory_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  T* data() { return memory_ + skip_; }
  /// Overwrites all numbers.
  void set(const std::vector<T>& numbers) {
    check(cudaMemcpy(data(), numbers.data(), sizeof(T) * count_, cudaMemcpyHostToDevice));
  }
  std::vector<T> back() {
    std::vector<T> numbers(count_);
    check(cudaMemcpy(numbers.data(), data(), sizeof(T) * count_, cudaMemcpyDeviceToHost));
    return numbers;
  }

 private:
  std::size_t count_, skip_;
  T* memory_ = nullptr;
};

/// A separate stream, which waits for work queued before its creation.
class OwnStream {
 public:
  OwnStream() {
    check(cudaDeviceSynchronize());
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  }
  ~OwnStream() { cudaStreamDestroy(stream_); }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  Stream stream() const { return {stream_}; }
  void wait() const { check(cudaStreamSynchronize(stream_)); }

 private:
  cudaStream_t stream_ = nullptr;
};

/// Captures what `queue` puts on a stream in a graph, and launches the graph.
template <typename Queue>
void run_as_graph(const Queue& queue) {
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t runnable = nullptr;
  check(cudaDeviceSynchronize());  // this stream would not wait for earlier copies
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  queue(Stream{stream});
  check(cudaStreamEndCapture(stream, &graph));
  check(cudaGraphInstantiate(&runnable, graph, 0));
  check(cudaGraphLaunch(runnable, stream));
  check(cudaStreamSynchronize(stream));
  cudaGraphExecDestroy(runnable);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
}

/// The same, or queues directly on the default stream.
template <typename Queue>
void run(bool in_graph, const Queue& queue) {
  if (in_graph)
    run_as_graph(queue);
  else
    queue(Stream{});
}

}  // namespace keel::testing
