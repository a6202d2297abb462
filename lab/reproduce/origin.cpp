#include "lab/reproduce/origin.h"

#include <ATen/Version.h>
#include <torch/version.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <thread>

#include "keel/version.h"

namespace keel::lab::reproduce {
namespace {

std::string processor() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown";
}

/// What the environment's KEEL_TREE says, or git.
std::string source_tree() {
  if (const char* told = std::getenv("KEEL_TREE")) return told;
  char line[256] = "";
  if (FILE* git = ::popen("git describe --always --dirty 2>/dev/null", "r")) {
    if (std::fgets(line, sizeof line, git) == nullptr) line[0] = 0;
    ::pclose(git);
  }
  const std::string tree = line;
  return tree.empty() ? "unknown" : tree.substr(0, tree.find('\n'));
}

std::string today() {
  char text[32];
  const std::time_t now = std::time(nullptr);
  std::strftime(text, sizeof text, "%Y-%m-%d", std::gmtime(&now));
  return text;
}

}  // namespace

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
  return {.date = today(),
          .command = command,
          .tree = source_tree(),
          .keel = KEEL_VERSION,
          .libtorch = TORCH_VERSION,
          .cuda = cuda.empty() ? "none" : cuda,
          .device = device,
          .processor = processor(),
          .cores = std::int64_t(std::thread::hardware_concurrency())};
}

}  // namespace keel::lab::reproduce
