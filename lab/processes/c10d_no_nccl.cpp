#include "keel/error.h"
#include "lab/processes/c10d_backend.h"

namespace keel::lab {

BackendPointer nccl(const Place&, const StorePointer&, std::chrono::milliseconds) {
  throw Error(
      "keel::lab: this keel was built without NCCL (a LibTorch with CUDA, and nccl.h), and so "
      "trains on GPUs with one process only");
}

}  // namespace keel::lab
