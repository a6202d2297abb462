#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include <cstdlib>

#include "lab/processes/c10d_backend.h"

namespace keel::lab {

BackendPointer nccl(const Place& place, const StorePointer& store,
                    std::chrono::milliseconds timeout) {
  using Nccl = c10d::ProcessGroupNCCL;
  // Its own way to deal with errors ends the process without saying whose fault it was, and knows
  // nothing of sums in a graph. Heartbeat does both.
  setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", /*overwrite=*/0);
  const auto options = Nccl::Options::create();
  options->timeout = timeout;
  return c10::make_intrusive<Nccl>(store, int(place.process), int(place.size), options);
}

}  // namespace keel::lab
