#include "keel/error.h"
#include "lab/processes/c10d_backend.h"

namespace keel::lab {

BackendPointer gloo(const Place&, const StorePointer&, std::chrono::milliseconds) {
  throw Error(
      "keel::lab: this keel was built without Gloo's headers (Debian: libgloo-dev), and so trains "
      "on CPUs with one process only");
}

}  // namespace keel::lab
