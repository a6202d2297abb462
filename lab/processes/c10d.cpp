// The only file that includes c10d. KEEL_GLOO and KEEL_NCCL: this LibTorch has the headers of each.

#include "lab/processes/processes.h"

#if defined(KEEL_GLOO) || defined(KEEL_NCCL)
#include <torch/version.h>

#include <cstdlib>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#endif
#ifdef KEEL_GLOO
#ifndef USE_C10D_GLOO
#define USE_C10D_GLOO  // LibTorch 2 does not define it
#endif
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#endif
#ifdef KEEL_NCCL
#ifndef USE_C10D_NCCL
#define USE_C10D_NCCL
#endif
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#endif

namespace keel::lab {
namespace {

using torch::Tensor;

template <typename Backend>
class C10dGroup : public Group {
 public:
  explicit C10dGroup(c10::intrusive_ptr<Backend> backend) : backend_(std::move(backend)) {}
  ~C10dGroup() override {
    // NCCL holds memory of the device until then.
    if constexpr (requires { backend_->shutdown(); })
      if (name() == "nccl") try {
          backend_->shutdown();
        } catch (const std::exception&) {  // errors no longer matter
        }
  }

  void sum(Tensor& tensor) override {
    std::vector<Tensor> tensors{tensor};
    backend_->allreduce(tensors)->wait();
  }
  void broadcast(Tensor& tensor) override {
    std::vector<Tensor> tensors{tensor};
    backend_->broadcast(tensors)->wait();
  }
  std::string name() const override { return backend_->getBackendName(); }

 private:
  c10::intrusive_ptr<Backend> backend_;
};

#if defined(KEEL_GLOO) || defined(KEEL_NCCL)
c10::intrusive_ptr<c10d::Store> open_store(const Place& place, std::chrono::milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = std::uint16_t(place.port);
  options.isServer = place.process == 0 && !place.store_is_kept;
  options.waitWorkers = false;  // the group waits for them
  options.timeout = timeout;
  return c10::make_intrusive<c10d::PrefixStore>(
      "keel/" + place.attempt, c10::make_intrusive<c10d::TCPStore>(place.address, options));
}
#endif

std::unique_ptr<Group> gloo([[maybe_unused]] const Place& place,
                            [[maybe_unused]] std::chrono::milliseconds timeout) {
#ifdef KEEL_GLOO
  using Gloo = c10d::ProcessGroupGloo;
  const auto options = Gloo::Options::create(timeout);
  // The variable that torch.distributed reads. A machine's own name may not resolve, and is not needed if all processes
  // are on one machine.
  if (const char* interface = std::getenv("GLOO_SOCKET_IFNAME"))
    options->devices = {Gloo::createDeviceForInterface(interface)};
  else if (place.address == "localhost" || place.address.starts_with("127."))
    options->devices = {Gloo::createDeviceForHostname("127.0.0.1")};
  else
    options->devices = {Gloo::createDefaultDevice()};
  return std::make_unique<C10dGroup<Gloo>>(c10::make_intrusive<Gloo>(
      open_store(place, timeout), int(place.process), int(place.size), options));
#else
  throw ProcessError(
      "several processes on CPUs need Gloo, which this build lacks (Debian: libgloo-dev)");
#endif
}

std::unique_ptr<Group> nccl([[maybe_unused]] const Place& place,
                            [[maybe_unused]] std::chrono::milliseconds timeout) {
#ifdef KEEL_NCCL
  using Nccl = c10d::ProcessGroupNCCL;
  const auto options = Nccl::Options::create();
  options->timeout = timeout;
  return std::make_unique<C10dGroup<Nccl>>(c10::make_intrusive<Nccl>(
      open_store(place, timeout), int(place.process), int(place.size), options));
#else
  throw ProcessError("several processes on GPUs need NCCL, which this build lacks");
#endif
}

}  // namespace

std::unique_ptr<Group> connect(const Place& place, torch::Device device,
                               std::chrono::milliseconds timeout) {
  return device.is_cuda() ? nccl(place, timeout) : gloo(place, timeout);
}

}  // namespace keel::lab
