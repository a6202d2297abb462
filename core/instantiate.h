#pragma once

// A stage is a template in its .cpp or .cu file, which instantiates it for the supported types:
//
//     #define KEEL_STAGES(T) KEEL_STAGE(moments, T) KEEL_STAGE(cross_moments, T)
//     KEEL_FOR_STORED(KEEL_STAGES)
//     #undef KEEL_STAGES

#include <complex>

/// Instantiates `stage` for T, whatever its parameters are.
#define KEEL_STAGE(stage, T) template decltype(stage<T>) stage<T>;

/// The types of matrices and statistics.
#define KEEL_FOR_REAL(stages) stages(float) stages(double)

/// The types of complex matrices.
#define KEEL_FOR_COMPLEX(stages) stages(std::complex<float>) stages(std::complex<double>)

/// The types of activations.
#define KEEL_FOR_STORED(stages) KEEL_FOR_REAL(stages) stages(Half) stages(BFloat16)
