#pragma once

namespace keel {

/// Lets LibTorch use `threads` threads, and returns that number. 0 means OMP_NUM_THREADS if it is set, otherwise every
/// core. Call it once at the start of a program: some builds of LibTorch start with one thread.
int use_all_cores(int threads = 0);

}  // namespace keel
