// keel and its peers on the same inputs in one run: medians, ratios, JSON. See --help.

#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <torch/version.h>

#include <cstring>
#include <thread>

#include "add.h"
#include "bench/machine.h"
#include "cases.h"
#include "keel/torch/keel.h"
#include "keel/version.h"

int main(int argc, char** argv) {
  std::string json;
  bool accuracy = true;
  // Repetitions of keel and its peers take turns, so that a machine that slows down slows all.
  std::string interleave = "--benchmark_enable_random_interleaving=true";
  std::vector<char*> rest{argv[0], interleave.data()};
  for (int i = 1; i < argc; ++i) {
    if (!std::strncmp(argv[i], "--json=", 7)) {
      json = argv[i] + 7;
    } else if (!std::strcmp(argv[i], "--no-accuracy")) {
      accuracy = false;
    } else if (!std::strcmp(argv[i], "--full")) {
      keel::bench::effort().full = true;
    } else if (!std::strcmp(argv[i], "--help")) {
      fmt::print(
          "usage: keel_bench [--full] [--json=FILE] [--no-accuracy] [--benchmark_filter=REGEX] "
          "...\n"
          "Times keel and its peers (torch.linalg.eigh and svd, Eigen; BatchNorm2d and a layer of\n"
          "torch's operators) on the same inputs and threads, and prints medians and ratios. "
          "Takes\n"
          "three minutes; with --full every cell is timed, longer and more often, for the record. "
          "Other\n"
          "--benchmark_* options go to Google Benchmark.\n");
      return 0;
    } else {
      rest.push_back(argv[i]);
    }
  }
  int count = int(rest.size());
  benchmark::Initialize(&count, rest.data());
  if (benchmark::ReportUnrecognizedArguments(count, rest.data())) return 2;
  try {
    keel::use_all_cores();
    const std::map<std::string, std::string> context{
        {"keel", KEEL_VERSION},
        {"tree", keel::machine::source_tree()},
        {"libtorch", TORCH_VERSION},
        {"processor", keel::machine::processor()},
        {"cores", std::to_string(std::thread::hardware_concurrency())},
        {"threads", std::to_string(at::get_num_threads())},
        {"time", keel::machine::utc()},
    };
    for (const auto& [key, value] : context) fmt::print("{}: {}\n", key, value);
    std::fflush(stdout);
    keel::bench::register_eigh();
    keel::bench::register_svd();
    keel::bench::register_layers();
    keel::bench::register_stages();
    keel::bench::Report report;
    if (benchmark::RunSpecifiedBenchmarks(&report) == 0) {
      fmt::print(stderr, "keel_bench: no benchmark matches\n");
      return 2;
    }
    report.sort();
    report.print();
    std::vector<keel::bench::AccuracyRow> accuracy_rows;
    if (accuracy) {
      accuracy_rows = keel::bench::eigh_accuracy();
      const auto of_svd = keel::bench::svd_accuracy();
      accuracy_rows.insert(accuracy_rows.end(), of_svd.begin(), of_svd.end());
    }
    if (!json.empty()) report.write_json(json, context, accuracy_rows);
    return report.failed() ? 1 : 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "keel_bench: {}\n", error.what());
    return 1;
  }
}
