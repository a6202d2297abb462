#include <cstdlib>
#include <cstring>

#include "kernels.h"

namespace keel::cpu {

#define KEEL_DECLARE(isa)               \
  namespace isa {                       \
  extern const Kernels<float> kFloat;   \
  extern const Kernels<double> kDouble; \
  }
KEEL_DECLARE(baseline)
#ifdef KEEL_HAS_avx2
KEEL_DECLARE(avx2)
KEEL_DECLARE(avx512)
#endif
#undef KEEL_DECLARE

namespace {

enum class Level { baseline, avx2, avx512 };

Level best_level() {
#ifdef KEEL_HAS_avx2
  const char* cap = std::getenv("KEEL_ISA");
  const auto capped = [cap](const char* name) { return cap != nullptr && !std::strcmp(cap, name); };
  if (capped("baseline")) return Level::baseline;
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512cd") && !capped("avx2"))
    return Level::avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("bmi2"))
    return Level::avx2;
#endif
  return Level::baseline;
}

template <typename T>
const Kernels<T>& pick(Level level) {
  const auto of = [](const Kernels<float>& f, const Kernels<double>& d) -> const Kernels<T>& {
    if constexpr (sizeof(T) == sizeof(float)) {
      return f;
    } else {
      return d;
    }
  };
#ifdef KEEL_HAS_avx2
  if (level == Level::avx512) return of(avx512::kFloat, avx512::kDouble);
  if (level == Level::avx2) return of(avx2::kFloat, avx2::kDouble);
#endif
  (void)level;
  return of(baseline::kFloat, baseline::kDouble);
}

}  // namespace

template <typename T>
const Kernels<T>& kernels() {
  static const Kernels<T>& chosen = pick<T>(best_level());
  return chosen;
}
template const Kernels<float>& kernels();
template const Kernels<double>& kernels();

}  // namespace keel::cpu
