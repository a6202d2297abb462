#pragma once

// cuSOLVER's solvers on a batch of row-major matrices in device memory.

#include <torch/types.h>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "timing.h"

namespace keel::bench {

/// Every cuSOLVER routine fit for this batch, float32 or float64. Each call copies the matrices first, since they are
/// overwritten; "copy" among them is that copy alone, to be taken off.
std::vector<Peer> cusolver_peers(const torch::Tensor& matrices);

/// Values (batch, n) descending and vectors (batch, n, n) in columns, float32, by syevd, one matrix after another.
std::pair<torch::Tensor, torch::Tensor> by_syevd(const torch::Tensor& matrices);

/// cuSOLVER's batched singular value decompositions that take this shape, (batch, m, n) with m >= n. They read the numbers by
/// columns, which makes them other matrices of the same kind. gesvdj overwrites its input and has a copy before it;
/// "copy" among them is that copy alone.
std::vector<Peer> cusolver_svd_peers(const torch::Tensor& matrices);

}  // namespace keel::bench
