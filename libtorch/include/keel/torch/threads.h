#pragma once

namespace keel {

/// Lets LibTorch use `threads` threads; 0 means what OMP_NUM_THREADS says, or else every core. For
/// programs to call once at their start: some builds of LibTorch begin with one thread. Returns the
/// number set.
int use_all_cores(int threads = 0);

}  // namespace keel
