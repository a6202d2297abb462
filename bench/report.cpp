#include "report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <stdexcept>

#include "add.h"
#include "bench/json.h"

namespace keel::bench {
namespace {

/// Why a run failed, or nothing. Google Benchmark 1.8 renamed the fields.
std::string failure(const auto& run) {
  if constexpr (requires { run.error_occurred; }) {
    return run.error_occurred ? run.error_message : "";
  } else {
    return run.skipped ? run.skip_message : "";
  }
}

}  // namespace

AccuracyRow accuracy_row(const char* column, const std::string& size, const Errors& keel,
                         const Errors& lapack) {
  const auto [r, o] = keel;
  fmt::print("  n={:<7} residual {:.1e} ({:.2f}x)   orthogonality {:.1e} ({:.2f}x)\n", size, r,
             r / lapack.residual, o, o / lapack.orthogonality);
  return {{column, size},
          {"residual", fmt::format("{:.3e}", r)},
          {"lapack_residual", fmt::format("{:.3e}", lapack.residual)},
          {"orthogonality", fmt::format("{:.3e}", o)},
          {"lapack_orthogonality", fmt::format("{:.3e}", lapack.orthogonality)}};
}

// Repetitions take turns, so Google Benchmark reports nothing before the very end.
void show_progress(const std::string& name) {
  using Clock = std::chrono::steady_clock;
  static const Clock::time_point start = Clock::now();
  static Clock::time_point last = start - std::chrono::minutes(1);
  const bool terminal = isatty(STDERR_FILENO) != 0;
  const auto now = Clock::now();
  if (now - last < (terminal ? std::chrono::milliseconds(100) : std::chrono::seconds(10))) return;
  last = now;
  const std::string line = fmt::format(
      "{:>4} s  {}", std::chrono::duration_cast<std::chrono::seconds>(now - start).count(), name);
  if (terminal)
    fmt::print(stderr, "\r{:<78}", line.substr(0, 78));
  else
    fmt::print(stderr, "{}\n", line);
}

bool Report::ReportContext(const Context&) { return true; }

void Report::ReportRuns(const std::vector<Run>& runs) {
  for (const Run& run : runs) {
    if (const std::string why = failure(run); !why.empty()) {
      fmt::print(stderr, "{}: {}\n", run.benchmark_name(), why);
      failed_ = true;
    }
    if (run.run_type != Run::RT_Aggregate || run.aggregate_name != "median") continue;
    const std::string full = run.run_name.function_name;
    const auto slash = full.rfind('/');
    const std::string name = full.substr(0, slash), peer = full.substr(slash + 1);
    auto row =
        std::find_if(rows_.begin(), rows_.end(), [&](const Row& r) { return r.name == name; });
    if (row == rows_.end()) row = rows_.insert(row, Row{name, {}});
    row->microseconds[peer] =
        run.GetAdjustedRealTime() / benchmark::GetTimeUnitMultiplier(run.time_unit) * 1e6;
  }
}

void Report::sort() {
  const auto place = [](const Row& row) {
    const auto& names = registered();
    return std::find_if(
               names.begin(), names.end(),
               [&](const std::string& name) { return name.rfind(row.name + "/", 0) == 0; }) -
           names.begin();
  };
  std::sort(rows_.begin(), rows_.end(),
            [&](const Row& a, const Row& b) { return place(a) < place(b); });
}

void Report::print() const {
  if (isatty(STDERR_FILENO)) fmt::print(stderr, "\r{:<78}\r", "");
  std::string section;
  for (const Row& row : rows_) {
    const auto keel = row.microseconds.find("keel");
    if (keel == row.microseconds.end()) continue;
    const auto split = row.name.find("/n=");
    const std::string head = row.name.substr(0, split);
    if (head != section) {
      section = head;
      fmt::print("\n{}: microseconds per call (ratio to keel; above 1 keel is faster)\n", section);
    }
    std::string line =
        fmt::format("  {:<22} keel {:>11.1f}",
                    split == std::string::npos ? "" : row.name.substr(split + 1), keel->second);
    for (const auto& [peer, time] : row.microseconds)
      if (peer != "keel")
        line += fmt::format("   {} {:>11.1f} ({:.2f}x)", peer, time, time / keel->second);
    fmt::print("{}\n", line);
  }
}

void Report::write_json(const std::string& path, const std::map<std::string, std::string>& context,
                        const std::vector<AccuracyRow>& accuracy) const {
  std::vector<std::string> rows, accuracy_rows;
  for (const Row& row : rows_) rows.push_back(json_of(row.name) + ": " + json_of(row.microseconds));
  for (const AccuracyRow& row : accuracy) accuracy_rows.push_back(json_of(row));
  std::ofstream out(path);
  out << "{\n  \"context\": " << json_of(context) << ",\n  \"microseconds\": {" << lines(rows)
      << "},\n  \"accuracy\": [" << lines(accuracy_rows) << "]\n}\n";
  if (!out.flush()) throw std::runtime_error("keel_bench: cannot write " + path);
}

}  // namespace keel::bench
