#pragma once

#include <functional>
#include <string>

namespace keel::lab {

/// How a piece of work ended in a process of its own.
struct Ending {
  int signal = 0;     ///< that killed it
  std::string words;  ///< of the exception that ended it
};

/// Does the work in a child process, which it may kill. After a minute the child is ended by SIGALRM; where no process is
/// to be had, nothing is done and the end is a good one.
Ending in_child(const std::function<void()>& work);

/// What is known of bfloat16 on this machine's CPU.
struct Bfloat16Cpu {
  std::string fault;  ///< why it cannot be used; empty: it can
  std::string note;   ///< what had to be done for it; mostly empty
};

/// `trial` tells how convolutions end in a child process. Where they meet an instruction that the CPU shows and the system
/// (or the hypervisor) does not grant, as can be with AMX's tiles, oneDNN is told by ONEDNN_MAX_CPU_ISA to do with less.
/// It listens up to its first use in this process; a user's own setting stays.
Bfloat16Cpu find_out_bfloat16(const std::function<Ending()>& trial);

/// LibTorch's convolutions and products in the shapes of a network, forward and backward, on one thread.
void convolve_in_bfloat16();

/// What these tell of this machine. Asked once a process, before its first step in bfloat16 on the CPU.
const Bfloat16Cpu& bfloat16_cpu();

}  // namespace keel::lab
