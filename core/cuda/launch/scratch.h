#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>

#include "keel/error.h"
#include "keel/stream.h"

namespace keel::cuda {

inline cudaStream_t native(const Stream& stream) {
  return static_cast<cudaStream_t>(stream.handle);
}

inline void check(const char* operation, cudaError_t error) {
  if (error == cudaSuccess) return;
  throw Error(std::string(operation) + ": CUDA error: " + cudaGetErrorString(error));
}

/// Checks after a launch that it was queued.
inline void check_launch(const char* operation) { check(operation, cudaGetLastError()); }

/// Temporary device memory. It is released when the last kernel that uses it is queued.
template <typename T>
class Scratch {
 public:
  Scratch(const char* operation, const Stream& stream, std::int64_t count) : stream_(stream) {
    if (count == 0) return;
    const std::size_t bytes = std::size_t(count) * sizeof(T);
    if (stream.allocate) {
      data_ = static_cast<T*>(stream.allocate(bytes));
    } else {
      void* memory = nullptr;
      check(operation, cudaMallocAsync(&memory, bytes, native(stream)));
      data_ = static_cast<T*>(memory);
    }
  }
  ~Scratch() {
    if (data_ == nullptr) return;
    if (stream_.release)
      stream_.release(data_);
    else
      cudaFreeAsync(data_, native(stream_));
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  operator T*() const { return data_; }

 private:
  const Stream& stream_;
  T* data_ = nullptr;
};

}  // namespace keel::cuda
