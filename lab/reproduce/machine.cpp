#include "lab/reproduce/machine.h"

#include <ATen/Version.h>
#include <torch/version.h>

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
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  return "unknown";
}

std::string tree() {
  if (const char* told = std::getenv("KEEL_TREE")) return told;
  std::string out;
  if (FILE* pipe = popen("git describe --always --dirty 2>/dev/null", "r")) {
    char buffer[256];
    while (fgets(buffer, sizeof(buffer), pipe)) out += buffer;
    pclose(pipe);
  }
  while (!out.empty() && out.back() == '\n') out.pop_back();
  return out.empty() ? "unknown" : out;
}

std::string today() {
  char text[32];
  const std::time_t now = std::time(nullptr);
  std::strftime(text, sizeof(text), "%Y-%m-%d", std::gmtime(&now));
  return text;
}

/// Every LibTorch with CUDA says so in its configuration.
std::string cuda() {
  const std::string config = at::show_config(), mark = "CUDA Runtime ";
  const auto found = config.find(mark);
  if (found == std::string::npos) return "none";
  const auto begin = found + mark.size();
  return config.substr(begin, config.find_first_not_of("0123456789.", begin) - begin);
}

}  // namespace

Origin this_origin(const std::string& command, const std::string& device) {
  return {.date = today(),
          .command = command,
          .tree = tree(),
          .keel = KEEL_VERSION,
          .libtorch = TORCH_VERSION,
          .cuda = cuda(),
          .device = device,
          .processor = processor(),
          .cores = std::int64_t(std::thread::hardware_concurrency())};
}

}  // namespace keel::lab::reproduce
