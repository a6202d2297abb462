// Sums that processes add up to get the moments of all their samples (keel/moments.h).

#include "activation_tensors.h"
#include "autograd.h"
#include "check.h"
#include "device.h"
#include "keel/moments.h"
#include "matrix_tensors.h"
#include "ops/operators.h"

namespace keel::ops {
namespace {

constexpr const char* kPartial = "keel::partial_moments";
constexpr char kNotThroughSums[] =
    "keel::partial_moments: no derivative; use keel::moments, which has one";

Tensor partial_moments_kernel(const Tensor& input, std::int64_t groups,
                              const Optional<Tensor>& shift) {
  check_activations(kPartial, "input", input, groups);
  check_channels(kPartial, "shift", or_undefined(shift), input);
  const auto channels = input.sym_size(1);
  const Tensor result =
      input.new_empty_symint({channels * (channels / groups) + channels + c10::SymInt(1)},
                             input.options().dtype(at::kDouble));
  if (input.is_meta()) return result;
  if (input.size(1) == 0) return result.fill_(double(samples_of(input)));
  const Order order = order_of(input);
  const Tensor x = in_order(input, order), about = as_shift(shift);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), kPartial, [&] {
    using T = CoreType<scalar_t>;
    on_device_of(x, KEEL_STAGE(partial_moments<T>), activations<const T>(x, groups, order),
                 data_or_null<const double>(about), result.data_ptr<double>());
  });
  return result;
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(keel, m) {
  m.def("partial_moments(Tensor input, int groups=1, Tensor? shift=None) -> Tensor");
}
KEEL_OPERATOR("partial_moments", &partial_moments_kernel,
              without_derivative<partial_moments, kNotThroughSums>)

}  // namespace keel::ops
