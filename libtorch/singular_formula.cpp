#include "singular_formula.h"

#include "gradient_rule_formula.h"

namespace keel::ops {

Tensor in_both_bases(const Tensor& left, const Tensor& right, const Tensor& core,
                     const Tensor& beside_left, const Tensor& beside_right) {
  if (has_beside_left(left) && beside_left.defined())
    return (left.matmul(core - left.mT().matmul(beside_left)) + beside_left).matmul(right);
  if (has_beside_right(right) && beside_right.defined())
    return left.matmul((core - beside_right.matmul(right.mT())).matmul(right) + beside_right);
  return left.matmul(core).matmul(right);
}

Tensor bounded_quotient(const Tensor& numerator, const Tensor& x, const Tensor& values) {
  return quotient(Masked{}, numerator, x, values);
}

}  // namespace keel::ops
