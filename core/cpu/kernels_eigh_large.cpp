// Compiled once per instruction set, like kernels.cpp.

#include "eigh_large_kernels.h"
#include "eigh_large_merge.h"
#include "eigh_large_steps.h"
#include "product.h"
#include "svd_tall_steps.h"
#include "svd_values_steps.h"
#include "thin_product.h"
#include "tridiagonal_values.h"

namespace keel::cpu::KEEL_ISA {

template <typename T>
const LargeKernels<T>& large_kernels() {
  static constexpr LargeKernels<T> table{kDepth<T>,
                                         packed_size<T>,
                                         pack<T>,
                                         multiply_packed<T>,
                                         thin_piece<T, false>,
                                         thin_piece<T, true>,
                                         largest<T>,
                                         scale<T>,
                                         symmetric_times<T>,
                                         hermitian_times<T>,
                                         dots<T>,
                                         subtract_rows<T>,
                                         reflector<T>,
                                         complex_reflector<T>,
                                         add<T>,
                                         finish_product<T>,
                                         both_products<T>,
                                         bisect<T>,
                                         secular_value<T>,
                                         secular_weights<T>,
                                         update_row<T>,
                                         update_both<T>,
                                         turn<T>,
                                         tridiagonal_values<T>,
                                         tall_sizes<T>,
                                         tall_reduce<T>,
                                         tall_expand<T>,
                                         sign<T>,
                                         store_columns<T>,
                                         store_complex_columns<T>};
  return table;
}
template const LargeKernels<float>& large_kernels();
template const LargeKernels<double>& large_kernels();

}  // namespace keel::cpu::KEEL_ISA
