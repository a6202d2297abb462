#include "record.h"

#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <stdexcept>

#include "bench/json.h"

namespace keel::bench {

Record::Record(std::map<std::string, std::string> context, std::string path)
    : context_(std::move(context)), path_(std::move(path)) {
  for (const auto& [key, value] : context_) fmt::print("{}: {}\n", key, value);
}

void Record::section(const std::string& title) const {
  fmt::print("\n{}\n", title);
  std::fflush(stdout);
}

void Record::add(const std::string& name, const Microseconds& times, const std::string& note) {
  rows_.emplace_back(name, times);
  const auto keel = times.find("keel");
  std::string line = fmt::format("  {:<52}", name);
  if (keel != times.end()) line += fmt::format(" keel {:>10.1f}", keel->second);
  for (const auto& [peer, time] : times) {
    if (peer == "keel") continue;
    line += fmt::format("   {} {:.1f}", peer, time);
    if (keel != times.end()) line += fmt::format(" ({:.2f}x)", time / keel->second);
  }
  fmt::print("{}{}{}\n", line, note.empty() ? "" : "   ", note);
  std::fflush(stdout);
}

void Record::judge(const Judged& judged) { targets_.push_back(judged); }

void Record::at_least(const std::string& name, double figure, double target) {
  judge({name, ">=", figure, target, figure >= target});
}

void Record::at_most(const std::string& name, double figure, double target) {
  judge({name, "<=", figure, target, figure <= target});
}

void Record::print_targets() const {
  section("targets");
  std::size_t missed = 0;
  for (const Judged& t : targets_) {
    missed += !t.reached;
    fmt::print("  {} {:<72} {:>9.3f}  (target {} {:.3g})\n", t.reached ? "PASS " : "short", t.name,
               t.figure, t.relation, t.target);
  }
  fmt::print("{} of {} targets reached\n", targets_.size() - missed, targets_.size());
}

void Record::write() const {
  if (path_.empty()) return;
  std::vector<std::string> rows, targets, accuracy;
  for (const auto& [name, times] : rows_) rows.push_back(json_of(name) + ": " + json_of(times));
  for (const Judged& t : targets_)
    targets.push_back(fmt::format(
        "{{\"name\": {}, \"figure\": {:.4f}, \"target\": \"{} {:.4g}\", \"reached\": {}}}",
        json_of(t.name), t.figure, t.relation, t.target, t.reached));
  for (const auto& row : accuracy_) accuracy.push_back(json_of(row));
  std::ofstream out(path_);
  out << "{\n  \"context\": " << json_of(context_) << ",\n  \"microseconds\": {" << lines(rows)
      << "},\n  \"targets\": [" << lines(targets) << "],\n  \"accuracy\": [" << lines(accuracy)
      << "]\n}\n";
  if (!out.flush()) throw std::runtime_error("keel_bench_gpu: cannot write " + path_);
}

}  // namespace keel::bench
