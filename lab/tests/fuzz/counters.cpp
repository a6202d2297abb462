// Coverage of the readers. gcc calls this function in every basic block of theirs. libFuzzer normally reads clang's
// counters, but it uses any that are in this section.

#include <cstdint>

namespace {
constexpr int kBits = 17;
[[gnu::section("__libfuzzer_extra_counters")]] std::uint8_t counters[1 << kBits];
}  // namespace

extern "C" void __wrap___sanitizer_cov_trace_pc() {
  const auto place = reinterpret_cast<std::uintptr_t>(__builtin_return_address(0));
  ++counters[place * 0x9e3779b97f4a7c15u >> (64 - kBits)];
}

// gcc's hooks for floating-point comparisons, which libFuzzer does not define.
extern "C" void __sanitizer_cov_trace_cmpf(float, float) {}
extern "C" void __sanitizer_cov_trace_cmpd(double, double) {}
