#pragma once

#include "keel/spectral.h"

namespace keel {

/// The rule by which PCA whitening differentiates eigh. There is no exact one, so Exact means
/// Masked.
GradientRule eigh_rule(const SpectralRule& rule);

}  // namespace keel
