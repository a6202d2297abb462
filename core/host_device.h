#pragma once

// Macros for formulas shared by the CPU and CUDA backends, and for loops to unroll on the GPU.
#ifdef __CUDACC__
#define KEEL_HOST_DEVICE __host__ __device__
#define KEEL_UNROLL_4 _Pragma("unroll 4")
#define KEEL_PRAGMA(x) _Pragma(#x)
#define KEEL_UNROLL_BY(count) KEEL_PRAGMA(unroll count)
#define KEEL_UNROLL _Pragma("unroll")
#else
#define KEEL_HOST_DEVICE
#define KEEL_UNROLL_4
#define KEEL_UNROLL_BY(count)
#define KEEL_UNROLL
#endif
