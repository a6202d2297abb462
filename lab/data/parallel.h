#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "lab/data/data_set.h"

namespace keel::lab {

/// Calls body(i) for every i in [0, count), on all cores. If bodies throw, rethrows the exception of the lowest i,
/// for any number of threads. Reports progress of `what` on the calling thread.
void in_parallel(const std::string& what, std::int64_t count,
                 const std::function<void(std::int64_t)>& body, const Progress& progress = {});

}  // namespace keel::lab
