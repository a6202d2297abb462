#pragma once

#include <functional>
#include <string>

namespace keel::lab {

/// How work in a child process ended.
struct Ending {
  int signal = 0;     ///< the signal that killed it, or 0
  std::string words;  ///< the exception's message, if one ended it
};

/// Runs the work in a child process, because it may crash. SIGALRM ends the child after a minute. If no child can be
/// started, the work does not run and the result counts as success.
Ending in_child(const std::function<void()>& work);

/// Whether this machine's CPU can compute in bfloat16.
struct Bfloat16Cpu {
  std::string fault;  ///< why it cannot be used; empty if it can
  std::string note;   ///< what was changed to make it work; usually empty
};

/// `trial` runs convolutions in a child process. If they hit an instruction that the CPU reports but the system or
/// hypervisor does not allow, as can happen with AMX, this sets ONEDNN_MAX_CPU_ISA to a lower level. oneDNN reads the
/// variable at its first use in this process. A user's own setting is kept.
Bfloat16Cpu find_out_bfloat16(const std::function<Ending()>& trial);

/// LibTorch's convolutions and products in the shapes of a network, forward and backward, on one thread.
void convolve_in_bfloat16();

/// The result for this machine. Checked once per process, before the first bfloat16 step on the CPU.
const Bfloat16Cpu& bfloat16_cpu();

}  // namespace keel::lab
