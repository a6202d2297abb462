#pragma once

// Differences of c10d between LibTorch 1.13 and 2.x: groups hold backends, the Reducer's constructor changed, and a store
// accepts a listening socket.

#include <torch/version.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#if TORCH_VERSION_MAJOR >= 2
#include <torch/csrc/distributed/c10d/Backend.hpp>
#endif

#include <exception>
#include <memory>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "lab/processes/bind_to.h"
#include "lab/processes/loopback.h"

namespace keel::lab {

using StorePointer = c10::intrusive_ptr<c10d::Store>;
using GroupPointer = c10::intrusive_ptr<c10d::ProcessGroup>;

#if TORCH_VERSION_MAJOR >= 2
using BackendPointer = c10::intrusive_ptr<c10d::Backend>;

/// A group with only this backend. A template, so that only the constructor that exists is compiled.
template <typename Group = c10d::ProcessGroup>
GroupPointer group_of(const BackendPointer& backend, const StorePointer& store,
                      c10::DeviceType device) {
  c10::intrusive_ptr<Group> group;
  if constexpr (std::is_constructible_v<Group, StorePointer, int, int>)
    group = c10::make_intrusive<Group>(store, backend->getRank(), backend->getSize());
  else
    group = c10::make_intrusive<Group>(
        store, backend->getRank(), backend->getSize(),
        c10::make_intrusive<typename Group::Options>(backend->getBackendName()));
  const auto kind =
      device == c10::DeviceType::CUDA ? Group::BackendType::NCCL : Group::BackendType::GLOO;
  group->setBackend(device, kind, backend);
  return group;
}
#else
using BackendPointer = GroupPointer;

inline GroupPointer group_of(const BackendPointer& backend, const StorePointer&, c10::DeviceType) {
  return backend;
}
#endif

/// A store of this process that listens only on a loopback address. A template, so that the option is compiled only where
/// it exists.
template <typename Store, typename Options>
c10::intrusive_ptr<Store> local_store(const std::string& address, Options options) {
  if constexpr (requires { options.masterListenFd; }) {
    options.masterListenFd = bound_socket(address, options.port);  // now owned by the store
    options.port = port_of(*options.masterListenFd);
    // The libuv server takes no socket before 2.8.
    if constexpr (requires { options.useLibUV; }) options.useLibUV = false;
    return c10::make_intrusive<Store>(address, options);
  } else {
    const BindTo this_one(address);
    return c10::make_intrusive<Store>(address, options);
  }
}

/// Releases a backend's device resources, if it has a function for that.
template <typename Backend>
void shut_down(Backend& backend) noexcept {
  if constexpr (requires { backend.shutdown(); }) try {
      backend.shutdown();
    } catch (const std::exception&) {  // errors no longer matter at shutdown
    }
}

template <typename Reducer>
std::unique_ptr<Reducer> make_reducer(std::vector<at::Tensor> parameters,
                                      std::vector<std::vector<std::size_t>> buckets,
                                      std::vector<std::size_t> limits, const GroupPointer& group,
                                      std::int64_t cap, std::int64_t first_cap) {
  using Flags = std::vector<bool>;
  using Buckets = std::vector<std::vector<std::size_t>>;
  using Limits = std::vector<std::size_t>;
  using Names = std::unordered_map<std::size_t, std::string>;
  using Tensors = std::vector<at::Tensor>;
  const Flags dense(parameters.size(), false);
  if constexpr (std::is_constructible_v<Reducer, Tensors, Buckets, Limits, GroupPointer, Flags,
                                        std::int64_t, bool, bool, Names, std::int64_t>)
    return std::make_unique<Reducer>(std::move(parameters), std::move(buckets), std::move(limits),
                                     group, dense, cap, /*find_unused_parameters=*/false,
                                     /*gradient_as_bucket_view=*/false, Names{}, first_cap);
  else if constexpr (std::is_constructible_v<Reducer, Tensors, Buckets, GroupPointer, Flags,
                                             std::int64_t, bool, bool, Names, std::int64_t>)
    return std::make_unique<Reducer>(std::move(parameters), std::move(buckets), group, dense, cap,
                                     false, false, Names{}, first_cap);
  else if constexpr (std::is_constructible_v<Reducer, Tensors, Buckets, GroupPointer, Flags,
                                             std::int64_t, bool, bool, Names, std::int64_t, bool,
                                             bool>)
    return std::make_unique<Reducer>(std::move(parameters), std::move(buckets), group, dense, cap,
                                     false, false, Names{}, first_cap, false, false);
  else
    return std::make_unique<Reducer>(std::move(parameters), std::move(buckets), group, dense, cap,
                                     false, false, Names{}, first_cap, false, false,
                                     std::vector<std::int64_t>(limits.begin(), limits.end()));
}

}  // namespace keel::lab
