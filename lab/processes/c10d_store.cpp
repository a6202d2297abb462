#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <algorithm>

#include "lab/processes/c10d_backend.h"

namespace keel::lab {
namespace {

using torch::Tensor;
using Bytes = std::vector<std::uint8_t>;

class C10dMailbox : public Mailbox {
 public:
  explicit C10dMailbox(StorePointer store) : store_(std::move(store)) {}
  void set(const std::string& key, const std::string& value) override {
    store_->set(key, Bytes(value.begin(), value.end()));
  }
  std::optional<std::string> get(const std::string& key) override {
    if (!store_->check({key})) return std::nullopt;  // get() would wait for it
    const Bytes value = store_->get(key);
    return std::string(value.begin(), value.end());
  }
  std::int64_t add(const std::string& key, std::int64_t amount) override {
    return store_->add(key, amount);
  }

 private:
  StorePointer store_;
};

/// A plain sum. By default the Reducer divides by the number of processes, but each loss here is already its share.
class Sum : public c10d::CommHookInterface {
 public:
  Sum(BackendPointer backend, SumWatch watch)
      : backend_(std::move(backend)), watch_(std::move(watch)) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    watch_.begun();
    std::vector<Tensor> tensors{bucket.getBufferRef()};
    auto future = backend_->allreduce(tensors)->getFuture();
    if (tensors[0].is_cpu())
      future->addCallback([failed = watch_.failed](c10::ivalue::Future& done) {
        if (done.hasError()) failed();
      });
    return future;
  }
  Tensor parseHookResult(const c10::IValue& result) override {
    return result.isTensor() ? result.toTensor() : result.toTensorVector().at(0);
  }

 private:
  BackendPointer backend_;
  SumWatch watch_;
};

class ReducerSum : public GradientSum {
 public:
  ReducerSum(const std::vector<Tensor>& parameters, const BackendPointer& backend,
             const GroupPointer& group, SumWatch watch) {
    // Buckets as in DistributedDataParallel: a small first one, so that sums begin early, and parameters in reverse
    // order, because the last gradients are ready first.
    const std::size_t first = c10d::kDefaultFirstBucketBytes, cap = c10d::kDefaultBucketBytesCap;
    auto [buckets, limits] = c10d::compute_bucket_assignment_by_size(parameters, {first, cap});
    std::ranges::reverse(buckets);
    std::ranges::reverse(limits);
    reducer_ = make_reducer<c10d::Reducer>(parameters, std::move(buckets), std::move(limits), group,
                                           std::int64_t(cap), std::int64_t(first));
    reducer_->register_comm_hook(std::make_unique<Sum>(backend, std::move(watch)));
  }

  void before_forward() override {
    reducer_->prepare_for_forward();
    reducer_->rebuild_buckets();  // once, after the first step, in the order gradients arrive
  }
  void before_backward() override { reducer_->prepare_for_backward({}); }

 private:
  std::unique_ptr<c10d::Reducer> reducer_;
};

class C10dCollectives : public Collectives {
 public:
  C10dCollectives(BackendPointer backend, const StorePointer& store, torch::Device device)
      : backend_(std::move(backend)),
        group_(group_of(backend_, store, device.type())),
        on_gpu_(device.is_cuda()) {}
  ~C10dCollectives() override {
    if (on_gpu_) shut_down(*backend_);
  }

  void sum(Tensor& tensor) override {
    std::vector<Tensor> tensors{tensor};
    backend_->allreduce(tensors)->wait();
  }
  void broadcast(Tensor& tensor) override {
    std::vector<Tensor> tensors{tensor};
    backend_->broadcast(tensors)->wait();
  }
  std::unique_ptr<GradientSum> gradient_sum(const std::vector<Tensor>& parameters,
                                            SumWatch watch) override {
    return std::make_unique<ReducerSum>(parameters, backend_, group_, std::move(watch));
  }
  std::string name() const override { return backend_->getBackendName(); }

 private:
  BackendPointer backend_;
  GroupPointer group_;
  bool on_gpu_;
};

class C10dStore : public Store {
 public:
  C10dStore(const Place& place, std::chrono::milliseconds timeout)
      : place_(place), timeout_(timeout) {
    keeper_ = connect(place.process == 0 && !place.store_is_kept);
    place_.port = keeper_->getPort();  // the actual port, if 0 was given
  }

  std::unique_ptr<Mailbox> mailbox() override {
    return std::make_unique<C10dMailbox>(prefixed(connect(false), "keel"));
  }
  std::unique_ptr<Collectives> collectives(const Place& place, torch::Device device,
                                           std::chrono::milliseconds timeout) override {
    const StorePointer store = prefixed(keeper_, "keel/group");
    return std::make_unique<C10dCollectives>(
        device.is_cuda() ? nccl(place, store, timeout) : gloo(place, store, timeout), store,
        device);
  }

 private:
  c10::intrusive_ptr<c10d::TCPStore> connect(bool keep) const {
    c10d::TCPStoreOptions options;
    options.port = std::uint16_t(place_.port);
    options.isServer = keep;
    options.waitWorkers =
        false;  // we wait ourselves, so that an error can name the missing processes
    options.timeout = timeout_;
    // If all processes are on one machine, no other machine needs to reach the store.
    return keep && is_loopback(place_.address)
               ? local_store<c10d::TCPStore>(place_.address, options)
               : c10::make_intrusive<c10d::TCPStore>(place_.address, options);
  }
  StorePointer prefixed(const StorePointer& store, const std::string& prefix) const {
    return c10::make_intrusive<c10d::PrefixStore>(prefix + "/" + place_.attempt, store);
  }

  Place place_;
  std::chrono::milliseconds timeout_;
  c10::intrusive_ptr<c10d::TCPStore> keeper_;
};

}  // namespace

std::unique_ptr<Store> open_store(const Place& place, std::chrono::milliseconds timeout) {
  return std::make_unique<C10dStore>(place, timeout);
}

}  // namespace keel::lab
