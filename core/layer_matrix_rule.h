#pragma once

#include "keel/spectral.h"

namespace keel {

/// The rule PCA whitening goes back through eigh with: there is no exact one, so Exact means Masked.
GradientRule eigh_rule(const SpectralRule& rule);

}  // namespace keel
