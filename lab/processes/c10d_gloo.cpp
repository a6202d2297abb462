#ifndef USE_C10D_GLOO
#define USE_C10D_GLOO  // 2.x does not define it
#endif
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <cstdlib>

#include "lab/processes/c10d_backend.h"
#include "lab/processes/loopback.h"

namespace keel::lab {
BackendPointer gloo(const Place& place, const StorePointer& store,
                    std::chrono::milliseconds timeout) {
  using Gloo = c10d::ProcessGroupGloo;
  const auto options = Gloo::Options::create(timeout);
  // The variable that torch.distributed reads. The machine's own name may not resolve, and is not needed if all
  // processes are on one machine.
  if (const char* interface = std::getenv("GLOO_SOCKET_IFNAME"))
    options->devices = {Gloo::createDeviceForInterface(interface)};
  else if (is_loopback(place.address))
    options->devices = {Gloo::createDeviceForHostname("127.0.0.1")};
  else
    options->devices = {Gloo::createDefaultDevice()};
  return c10::make_intrusive<Gloo>(store, int(place.process), int(place.size), options);
}

}  // namespace keel::lab
