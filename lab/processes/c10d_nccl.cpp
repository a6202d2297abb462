#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include <cstdlib>

#include "lab/processes/c10d_backend.h"

namespace keel::lab {

BackendPointer nccl(const Place& place, const StorePointer& store,
                    std::chrono::milliseconds timeout) {
  using Nccl = c10d::ProcessGroupNCCL;
  // NCCL's own error handling ends the process without naming the faulty one, and does not see sums inside a CUDA graph.
  // Heartbeat handles both.
  setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", /*overwrite=*/0);
  const auto options = Nccl::Options::create();
  options->timeout = timeout;
  return c10::make_intrusive<Nccl>(store, int(place.process), int(place.size), options);
}

}  // namespace keel::lab
