#pragma once

// Marks the small formulas that the CPU and CUDA twins share.
#ifdef __CUDACC__
#define KEEL_HOST_DEVICE __host__ __device__
#else
#define KEEL_HOST_DEVICE
#endif
