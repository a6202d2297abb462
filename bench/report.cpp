#include "report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <stdexcept>

#include "add.h"

namespace keel::bench {
namespace {

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) >= 0x20) out += c;
  }
  return out;
}

std::string object(const std::map<std::string, std::string>& fields) {
  std::string out;
  for (const auto& [key, value] : fields)
    out += fmt::format("{}\"{}\": \"{}\"", out.empty() ? "" : ", ", escaped(key), escaped(value));
  return "{" + out + "}";
}

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
  std::ofstream out(path);
  out << "{\n  \"context\": " << object(context) << ",\n  \"microseconds\": {\n";
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    std::string peers;
    for (const auto& [peer, time] : rows_[i].microseconds)
      peers += fmt::format("{}\"{}\": {:.3f}", peers.empty() ? "" : ", ", escaped(peer), time);
    out << fmt::format("    \"{}\": {{{}}}{}\n", escaped(rows_[i].name), peers,
                       i + 1 < rows_.size() ? "," : "");
  }
  out << "  },\n  \"accuracy\": [\n";
  for (std::size_t i = 0; i < accuracy.size(); ++i)
    out << "    " << object(accuracy[i]) << (i + 1 < accuracy.size() ? ",\n" : "\n");
  out << "  ]\n}\n";
  if (!out.flush()) throw std::runtime_error("keel_bench: cannot write " + path);
}

}  // namespace keel::bench
