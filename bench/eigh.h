#pragma once

#include <map>
#include <string>
#include <vector>

namespace keel::bench {

/// Registers eigh forward and forward + backward for keel, torch.linalg.eigh and Eigen.
void register_eigh();

/// Residual and orthogonality of keel and LAPACK on the same matrices; prints a table.
std::vector<std::map<std::string, std::string>> eigh_accuracy();

}  // namespace keel::bench
