#pragma once

namespace keel::bench {

/// Registers the layers' forward + backward on (32, 64, 32, 32), BatchNorm2d and the same ZCA layer written
/// with torch's operators beside them.
void register_layers();

}  // namespace keel::bench
