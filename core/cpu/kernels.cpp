// Compiled once per instruction set with KEEL_ISA and KEEL_VECTOR_BYTES set by core/CMakeLists.txt.

#include "kernels.h"

#include "eigh_lanes.h"
#include "eigh_one.h"
#include "multiply.h"
#include "svd_jacobi.h"
#include "svd_polish.h"

namespace keel::cpu::KEEL_ISA {

template <typename T>
const Kernels<T>& kernels() {
  static constexpr Kernels<T> table{kLanes<T>,
                                    multiply<T>,
                                    {lanes_scratch<T>, solve_lanes<T>},
                                    {lanes_scratch<std::complex<T>>, solve_lanes<std::complex<T>>},
                                    load<T>,
                                    tridiagonalise<T>,
                                    form_vectors<T>,
                                    iterate<T>,
                                    store<T>,
                                    svd_scratch<T, Lanes<T>>,
                                    svd_scratch<T, Alone<T>>,
                                    solve_svd<T, Lanes<T>>,
                                    solve_svd<T, Alone<T>>,
                                    svd_polish_scratch<T>,
                                    svd_square<T>,
                                    svd_polish<T>};
  return table;
}
template const Kernels<float>& kernels();
template const Kernels<double>& kernels();

}  // namespace keel::cpu::KEEL_ISA
