#include "lab/processes/c10d_backend.h"

#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <algorithm>

namespace keel::lab {
namespace {

using torch::Tensor;

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
    std::reverse(buckets.begin(), buckets.end());
    std::reverse(limits.begin(), limits.end());
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

}  // namespace

std::unique_ptr<GradientSum> make_gradient_sum(const std::vector<Tensor>& parameters,
                                               const BackendPointer& backend,
                                               const GroupPointer& group, SumWatch watch) {
  return std::make_unique<ReducerSum>(parameters, backend, group, std::move(watch));
}

}  // namespace keel::lab
