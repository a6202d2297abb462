#pragma once

#include <map>
#include <string>
#include <vector>

namespace keel::bench {

/// Registers svd forward, and polar factors and rotations forward + backward, for keel and torch.linalg.svd.
void register_svd();

/// Residual and orthogonality of keel and LAPACK's gesdd on the same matrices; prints a table.
std::vector<std::map<std::string, std::string>> svd_accuracy();

}  // namespace keel::bench
