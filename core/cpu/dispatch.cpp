#include <cstdlib>
#include <cstring>

#include "activation_kernels.h"
#include "eigh_large_kernels.h"
#include "kernels.h"

namespace keel::cpu {

// The tables of kernels*.cpp.
#define KEEL_DECLARE(isa)                           \
  namespace isa {                                   \
  template <typename T>                             \
  const Kernels<T>& kernels();                      \
  template <typename T>                             \
  const ActivationKernels<T>& activation_kernels(); \
  template <typename T>                             \
  const LargeKernels<T>& large_kernels();           \
  }
KEEL_DECLARE(baseline)
#ifdef KEEL_HAS_avx2
KEEL_DECLARE(avx2)
KEEL_DECLARE(avx512)
#endif
#undef KEEL_DECLARE

namespace {

#ifdef KEEL_HAS_avx2

enum class Level { baseline, avx2, avx512 };

Level best_level() {
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
  return Level::baseline;
}

/// Calls only the chosen function: the others may contain instructions that this processor lacks.
template <typename Table>
const Table& chosen(const Table& (*baseline)(), const Table& (*avx2)(), const Table& (*avx512)()) {
  static const Level level = best_level();
  return level == Level::avx512 ? avx512() : level == Level::avx2 ? avx2() : baseline();
}
#define KEEL_CHOSEN(table) chosen(&baseline::table, &avx2::table, &avx512::table)

#else
#define KEEL_CHOSEN(table) baseline::table()
#endif

}  // namespace

template <typename T>
const Kernels<T>& kernels() {
  static const Kernels<T>& table = KEEL_CHOSEN(kernels<T>);
  return table;
}
template const Kernels<float>& kernels();
template const Kernels<double>& kernels();

template <typename T>
const LargeKernels<T>& large_kernels() {
  static const LargeKernels<T>& table = KEEL_CHOSEN(large_kernels<T>);
  return table;
}
template const LargeKernels<float>& large_kernels();
template const LargeKernels<double>& large_kernels();

template <typename T>
const ActivationKernels<T>& activation_kernels() {
  static const ActivationKernels<T>& table = KEEL_CHOSEN(activation_kernels<T>);
  return table;
}
template const ActivationKernels<float>& activation_kernels();
template const ActivationKernels<double>& activation_kernels();
template const ActivationKernels<Half>& activation_kernels();
template const ActivationKernels<BFloat16>& activation_kernels();

}  // namespace keel::cpu
