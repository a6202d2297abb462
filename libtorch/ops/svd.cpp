// The operator svd. Its gradient is svd_backward.cpp.

#include "keel/svd.h"

#include "autograd.h"
#include "check.h"
#include "device.h"
#include "keel/gradient_rule.h"
#include "keel/torch/svd.h"
#include "matrix_tensors.h"
#include "ops/operators.h"
#include "svd_formula.h"

namespace keel::ops {
namespace {

constexpr const char* kSvd = "keel::svd";

Tensors<3> svd_kernel(const Tensor& matrix, StringView rule) {
  check_rectangles(kSvd, matrix);
  parsed(gradient_rule, kSvd, rule);  // report a bad rule now, not in backward
  if (matrix.is_meta()) return empty_svd(matrix);
  const auto type = matrix.scalar_type();
  const Tensor input = readable(in_compute_type(matrix));
  const auto [left, values, right] = empty_svd(input);
  AT_DISPATCH_FLOATING_TYPES(input.scalar_type(), kSvd, [&] {
    on_device_of(input, KEEL_STAGE(svd<scalar_t>), rectangles<const scalar_t>(input),
                 values.data_ptr<scalar_t>(), rectangles<scalar_t>(left),
                 rectangles<scalar_t>(right), nullptr);
  });
  return {left.to(type), values.to(type), right.to(type)};
}

Tensors<3> svd_autograd(const Tensor& matrix, StringView rule) {
  check_rectangles(kSvd, matrix);
  if (!needs_graph({matrix})) return svd.below_autograd(matrix, rule);
  const Tensor a = in_compute_type(matrix);
  const auto [left, values, right] = svd.below_autograd(a, rule);
  record({.name = kSvd,
          .inputs = {a},
          .outputs = {left, values, right},
          .saved = {left, values, right},
          .backward = [by = text(rule)](const GraphNode::Pass& pass) -> variable_list {
            const variable_list &g = pass.grads, &s = pass.saved;
            return {svd_backward(if_defined(g[0]), if_defined(g[1]), if_defined(g[2]), s[0], s[1],
                                 s[2], by)};
          },
          .forward =
              [&, u = left, s = values, vh = right] {
                return svd_tangents(gradient_rule(text(rule)), tangent_of(a), u, s, vh);
              }});
  const auto type = matrix.scalar_type();
  return {left.to(type), values.to(type), right.to(type)};
}

Tensor svdvals(const Tensor& matrix) {
  check_rectangles("keel::svdvals", matrix);
  return std::get<1>(svd(matrix, "masked"));
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(keel, m) {
  m.def("svd(Tensor matrix, str rule='masked') -> (Tensor U, Tensor S, Tensor Vh)");
  m.def("svdvals(Tensor matrix) -> Tensor", &svdvals);
}
KEEL_OPERATOR("svd", &svd_kernel, &svd_autograd)

}  // namespace keel::ops

namespace keel {

Svd svd(const torch::Tensor& matrix, const GradientRule& rule) {
  ops::check_rectangles("keel::svd", matrix);
  auto [left, values, right] = ops::svd(matrix, to_string(rule));
  return {std::move(left), std::move(values), std::move(right)};
}

torch::Tensor svdvals(const torch::Tensor& matrix) {
  return keel::svd(matrix).S;  // qualified, because argument-dependent lookup also finds at::svd
}

}  // namespace keel
