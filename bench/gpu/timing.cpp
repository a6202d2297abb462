#include "timing.h"

#include <ATen/cuda/CUDAGraph.h>
#include <ATen/cuda/Sleep.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>

namespace keel::bench {
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

cudaStream_t native() { return c10::cuda::getCurrentCUDAStream().stream(); }

/// Half a millisecond and more: a short call is queued by then, unless it waits for the device itself.
constexpr std::int64_t kCyclesAhead = 1'000'000;

/// One stretch of the current stream, timed on the device.
class Stopwatch {
 public:
  explicit Stopwatch(Host host = Host::counts) : host_(host) {
    C10_CUDA_CHECK(cudaEventCreate(&begin_));
    C10_CUDA_CHECK(cudaEventCreate(&end_));
  }
  ~Stopwatch() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  double microseconds(const std::function<void()>& call) {
    if (host_ == Host::is_ahead) at::cuda::sleep(kCyclesAhead);
    C10_CUDA_CHECK(cudaEventRecord(begin_, native()));
    call();
    C10_CUDA_CHECK(cudaEventRecord(end_, native()));
    C10_CUDA_CHECK(cudaEventSynchronize(end_));
    float milliseconds = 0;
    C10_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, begin_, end_));
    return 1e3 * double(milliseconds);
  }

 private:
  Host host_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

double median(std::vector<double> times) {
  const auto middle = times.begin() + std::ptrdiff_t(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

/// How many samples a call of that many microseconds is worth.
int samples(double time) { return time > 50e3 ? 3 : time > 5e3 ? 7 : time > 1e3 ? 25 : 101; }

}  // namespace

Microseconds in_turns(const std::vector<Peer>& peers, Host host) {
  Stopwatch watch(host);
  struct Turn {
    int wanted = 0;
    std::vector<double> times;
  };
  std::vector<Turn> turns(peers.size());
  int rounds = 0;
  for (std::size_t p = 0; p < peers.size(); ++p) {
    watch.microseconds(peers[p].call);  // modules load, handles are made
    const double second = watch.microseconds(peers[p].call);
    if (second > 2e5) {
      turns[p].times.push_back(second);
      continue;
    }
    turns[p].wanted = samples(watch.microseconds(peers[p].call));
    rounds = std::max(rounds, turns[p].wanted);
  }
  std::vector<std::size_t> order(peers.size());
  std::iota(order.begin(), order.end(), std::size_t(0));
  std::mt19937 random(1);
  for (int round = 0; round < rounds; ++round) {
    // Whoever follows a peer with much host code finds the host's caches cold, for more than one call: not
    // always the same one.
    std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t p : order) {
      if (round >= turns[p].wanted) continue;
      // Short calls are bound by the host: each finds its own code in the caches, not its neighbour's.
      if (turns[p].wanted > 7) peers[p].call();
      turns[p].times.push_back(watch.microseconds(peers[p].call));
    }
  }
  Microseconds result;
  for (std::size_t p = 0; p < peers.size(); ++p) result[peers[p].name] = median(turns[p].times);
  return result;
}

double back_to_back(int count, const std::function<void(int call)>& call) {
  Stopwatch watch;
  std::vector<double> times;
  for (int run = 0; run < 10; ++run) {
    const double time = watch.microseconds([&] {
      for (int k = 0; k < count; ++k) call(k);
    });
    if (run > 1) times.push_back(time / count);
  }
  return median(times);
}

Stream current_stream() {
  const cudaStream_t stream = native();
  return {stream,
          [stream](std::size_t bytes) { return allocator::raw_alloc_with_stream(bytes, stream); },
          [](void* memory) { allocator::raw_delete(memory); }};
}

std::function<void()> captured(const std::function<void()>& call) {
  C10_CUDA_CHECK(cudaDeviceSynchronize());
  const auto graph = std::make_shared<at::cuda::CUDAGraph>();
  const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
  for (int k = 0; k < 3; ++k) call();
  C10_CUDA_CHECK(cudaDeviceSynchronize());
  graph->capture_begin();
  call();
  graph->capture_end();
  return [graph] { graph->replay(); };
}

std::int64_t peak_bytes(const std::function<void()>& call) {
  call();
  std::int64_t largest = 0;
  // What LibTorch's backward thread lets go of late makes a call seem to take less, never more.
  for (int k = 0; k < 5; ++k) {
    C10_CUDA_CHECK(cudaDeviceSynchronize());
    allocator::resetPeakStats(0);
    const std::int64_t before = allocator::getDeviceStats(0).allocated_bytes[0].current;
    call();
    largest = std::max(largest, allocator::getDeviceStats(0).allocated_bytes[0].peak - before);
  }
  return largest;
}

}  // namespace keel::bench
