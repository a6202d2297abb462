#include "lab/reproduce/origin.h"

#include <ATen/Version.h>
#include <torch/version.h>

#include <thread>

#include "bench/machine.h"
#include "keel/version.h"

namespace keel::lab::reproduce {

std::string cuda_version() {
  // Every LibTorch with CUDA reports it in its configuration, whatever devices this machine has.
  const std::string config = at::show_config(), mark = "CUDA Runtime ";
  const auto found = config.find(mark);
  if (found == std::string::npos) return {};
  const auto begin = found + mark.size();
  return config.substr(begin, config.find_first_not_of("0123456789.", begin) - begin);
}

Origin this_origin(const std::string& command, const std::string& device) {
  const std::string cuda = cuda_version();
  return {.date = machine::utc("%Y-%m-%d"),
          .command = command,
          .tree = machine::source_tree(),
          .keel = KEEL_VERSION,
          .libtorch = TORCH_VERSION,
          .cuda = cuda.empty() ? "none" : cuda,
          .device = device,
          .processor = machine::processor(),
          .cores = std::int64_t(std::thread::hardware_concurrency())};
}

}  // namespace keel::lab::reproduce
