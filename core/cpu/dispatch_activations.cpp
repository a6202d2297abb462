#include <string_view>

#include "activation_kernels.h"
#include "kernels.h"

namespace keel::cpu {

#define KEEL_DECLARE_FOR(T) extern const ActivationKernels<T> kActivations##T;
#define KEEL_DECLARE(isa)    \
  namespace isa {            \
  KEEL_DECLARE_FOR(float)    \
  KEEL_DECLARE_FOR(double)   \
  KEEL_DECLARE_FOR(Half)     \
  KEEL_DECLARE_FOR(BFloat16) \
  }
KEEL_DECLARE(baseline)
#ifdef KEEL_HAS_avx2
KEEL_DECLARE(avx2)
KEEL_DECLARE(avx512)
#endif
#undef KEEL_DECLARE
#undef KEEL_DECLARE_FOR

#ifdef KEEL_HAS_avx2
#define KEEL_PICK(T)                           \
  chosen == "avx512" ? avx512::kActivations##T \
  : chosen == "avx2" ? avx2::kActivations##T   \
                     : baseline::kActivations##T
#else
#define KEEL_PICK(T) baseline::kActivations##T
#endif

#define KEEL_INSTANTIATE(T)                                                            \
  template <>                                                                          \
  const ActivationKernels<T>& activation_kernels() {                                   \
    [[maybe_unused]] const std::string_view chosen = kernels<float>().instruction_set; \
    return KEEL_PICK(T);                                                               \
  }
KEEL_INSTANTIATE(float)
KEEL_INSTANTIATE(double)
KEEL_INSTANTIATE(Half)
KEEL_INSTANTIATE(BFloat16)
#undef KEEL_INSTANTIATE
#undef KEEL_PICK

}  // namespace keel::cpu
