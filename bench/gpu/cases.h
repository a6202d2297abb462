#pragma once

#include "record.h"

namespace keel::bench {

/// eigh forward, keel (the core, and through the operator) beside cuSOLVER's routines and torch.linalg.eigh; residual and
/// orthogonality beside cuSOLVER's syevd.
void measure_eigh(Record& record);

/// eigh forward + backward under every rule, beside torch's.
void measure_eigh_backward(Record& record);

/// eigh, svd and polar of small matrices in huge batches, with the bytes they move; svd of all shapes beside cuSOLVER's
/// batched routines and torch.linalg.svd's drivers.
void measure_rectangles(Record& record);

/// The stages of a layer on (128, 64, 32, 32), one by one, with the bytes they move.
void measure_stages(Record& record);

/// The layers' forward + backward on (128, 64, 32, 32), one call after another and as a captured graph,
/// beside BatchNorm2d and one keel eigh of that size; peak memory beside BatchNorm2d's.
void measure_layers(Record& record);

/// The same of a norm with the ReLU behind it, as a captured graph: whitening with ReLU inside and apart, BatchNorm2d and
/// ReLU, and a BatchNorm with ReLU inside.
void measure_norm_relu(Record& record);

}  // namespace keel::bench
