#include "keel/running_average.h"

#include "autograd.h"
#include "check.h"
#include "device.h"
#include "matrix_tensors.h"
#include "ops/operators.h"

namespace keel::ops {
namespace {

constexpr const char* kRunningAverage = "keel::running_average";

/// A running statistic must have the shape and device of the batch's, but may have another type.
void check_running(const char* name, const Tensor& running, const Tensor& batch) {
  TORCH_CHECK(running.sym_sizes() == batch.sym_sizes(), kRunningAverage, ": expected ", name,
              " of shape ", shape_of(batch), ", got ", shape_of(running));
  check_place(kRunningAverage, name, running, batch);
}

void check_running_average(const Tensor& running_mean, const Tensor& running_matrix,
                           const Optional<Tensor>& running_variance,
                           const Tensor& num_batches_tracked, const Tensor& mean,
                           const Tensor& covariance, const Tensor& layer_matrix,
                           Optional<double> momentum) {
  check_matrices(kRunningAverage, covariance);
  check_like(kRunningAverage, "layer_matrix", layer_matrix, covariance);
  TORCH_CHECK(covariance.dim() == 3 && mean.dim() == 1 &&
                  mean.sym_size(0) == covariance.sym_size(0) * covariance.sym_size(1),
              kRunningAverage, ": expected mean (G * d) and covariance (G, d, d), got ",
              shape_of(mean), " and ", shape_of(covariance));
  check_statistics(kRunningAverage, "mean", mean, covariance);
  check_running("running_mean", running_mean, mean);
  check_running("running_matrix", running_matrix, layer_matrix);
  if (running_variance.has_value() && running_variance->defined())
    check_running("running_variance", *running_variance, mean);
  check_one_number(kRunningAverage, "num_batches_tracked", num_batches_tracked, at::kLong, mean);
  TORCH_CHECK_VALUE(!momentum.has_value() || (*momentum >= 0 && *momentum <= 1), kRunningAverage,
                    ": expected a momentum in [0, 1] or none, got ", momentum.value_or(0));
}

/// A running statistic in the batch's type: the tensor itself, or a copy that write_back() converts back.
struct InPlace {
  Tensor running, working;

  InPlace(const Tensor& given, at::ScalarType type)
      : running(given), working(given.defined() ? given.to(type).contiguous() : given) {}
  void write_back() const {
    if (!running.defined()) return;
    if (!working.is_same(running)) running.copy_(working);
    // Like every in-place operator, so that autograd detects a saved tensor that was overwritten.
    running.unsafeGetTensorImpl()->bump_version();
  }
};

void running_average_kernel(const Tensor& running_mean, const Tensor& running_matrix,
                            const Optional<Tensor>& running_variance,
                            const Tensor& num_batches_tracked, const Tensor& mean,
                            const Tensor& covariance, const Tensor& layer_matrix,
                            Optional<double> momentum, double eps) {
  check_running_average(running_mean, running_matrix, running_variance, num_batches_tracked, mean,
                        covariance, layer_matrix, momentum);
  if (mean.is_meta()) return;
  const auto type = mean.scalar_type();
  const InPlace means(running_mean, type), layer_matrices(running_matrix, type),
      variances(or_undefined(running_variance), type), count(num_batches_tracked, at::kLong);
  const Tensor batch_mean = mean.contiguous(), c = readable(covariance), s = readable(layer_matrix);
  AT_DISPATCH_FLOATING_TYPES(type, kRunningAverage, [&] {
    const RunningStatistics<scalar_t> running{
        means.working.data_ptr<scalar_t>(), matrices<scalar_t>(layer_matrices.working),
        data_or_null<scalar_t>(variances.working), count.working.data_ptr<std::int64_t>()};
    on_device_of(batch_mean, KEEL_STAGE(running_average<scalar_t>), to_std(momentum), eps,
                 batch_mean.data_ptr<scalar_t>(), matrices<const scalar_t>(c),
                 matrices<const scalar_t>(s), running);
  });
  for (const InPlace& statistic : {means, layer_matrices, variances, count}) statistic.write_back();
}

void running_average_autograd(const Tensor& running_mean, const Tensor& running_matrix,
                              const Optional<Tensor>& running_variance,
                              const Tensor& num_batches_tracked, const Tensor& mean,
                              const Tensor& covariance, const Tensor& layer_matrix,
                              Optional<double> momentum, double eps) {
  TORCH_CHECK(!needs_graph({running_mean, running_matrix, or_undefined(running_variance)}),
              kRunningAverage,
              ": expected running statistics that need no gradient, got some that do");
  running_average.below_autograd(running_mean, running_matrix, running_variance,
                                 num_batches_tracked, mean, covariance, layer_matrix, momentum,
                                 eps);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(keel, m) {
  m.def(
      "running_average(Tensor(a!) running_mean, Tensor(b!) running_matrix, Tensor(c!)? "
      "running_variance, Tensor(d!) num_batches_tracked, Tensor mean, Tensor covariance, Tensor "
      "layer_matrix, float? momentum, float eps) -> ()");
}
KEEL_OPERATOR("running_average", &running_average_kernel, &running_average_autograd)

}  // namespace keel::ops
