#pragma once

namespace keel::bench {

/// Registers the core's stages one by one on (32, 64, 32, 32): where a layer's time goes.
void register_stages();

}  // namespace keel::bench
