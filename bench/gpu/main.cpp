// keel on CUDA and its peers on the same inputs in one run: medians, ratios, targets, JSON. See --help.

#include <cuda_runtime_api.h>
#include <cusolverDn.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <cstring>

#include "bench/machine.h"
#include "cases.h"
#include "keel/version.h"

namespace {

std::string version(int number) { return fmt::format("{}.{}", number / 1000, number % 1000 / 10); }

std::map<std::string, std::string> context(const std::string& tree) {
  cudaDeviceProp properties{};
  int runtime = 0, driver = 0, solver[3] = {};
  cudaGetDeviceProperties(&properties, 0);
  cudaRuntimeGetVersion(&runtime);
  cudaDriverGetVersion(&driver);
  cusolverGetProperty(MAJOR_VERSION, &solver[0]);
  cusolverGetProperty(MINOR_VERSION, &solver[1]);
  cusolverGetProperty(PATCH_LEVEL, &solver[2]);
  return {{"keel", KEEL_VERSION},
          {"tree", tree},
          {"libtorch", TORCH_VERSION},
          {"gpu", properties.name},
          {"multiprocessors", std::to_string(properties.multiProcessorCount)},
          {"cuda runtime", version(runtime)},
          {"cuda driver", version(driver)},
          {"cusolver", fmt::format("{}.{}.{}", solver[0], solver[1], solver[2])},
          {"time", keel::machine::utc()}};
}

}  // namespace

int main(int argc, char** argv) {
  std::string json, tree = "unknown", only;
  for (int i = 1; i < argc; ++i) {
    const auto given = [&](const char* option, std::string& value) {
      if (std::strncmp(argv[i], option, std::strlen(option)) != 0) return false;
      value = argv[i] + std::strlen(option);
      return true;
    };
    if (given("--json=", json) || given("--tree=", tree) || given("--only=", only)) continue;
    const bool help = std::strcmp(argv[i], "--help") == 0;
    fmt::print(help ? stdout : stderr,
               "usage: keel_bench_gpu [--json=FILE] [--tree=COMMIT] [--only=PART,...]\n"
               "PART: eigh, backward, svd, stages, layers, relu\n"
               "Times keel and its peers (cuSOLVER, torch.linalg, BatchNorm2d) on one GPU and\n"
               "says of each target whether it was reached.\n");
    return help ? 0 : 2;
  }
  try {
    if (!torch::cuda::is_available()) throw std::runtime_error("expected a GPU, got none");
    using namespace keel::bench;
    const std::pair<const char*, void (*)(Record&)> parts[] = {
        {"eigh", measure_eigh},      {"backward", measure_eigh_backward},
        {"svd", measure_rectangles}, {"stages", measure_stages},
        {"layers", measure_layers},  {"relu", measure_norm_relu}};
    Record record(context(tree), json);
    bool any = false;
    for (const auto& [name, measure] : parts) {
      if (!only.empty() && ("," + only + ",").find(fmt::format(",{},", name)) == std::string::npos)
        continue;
      any = true;
      measure(record);
    }
    if (!any)
      throw std::runtime_error("expected --only=eigh, backward, svd, stages, layers or relu, got " +
                               only);
    record.print_targets();
    record.write();
  } catch (const std::exception& error) {
    fmt::print(stderr, "keel_bench_gpu: {}\n", error.what());
    return 1;
  }
}
