#pragma once

// What was measured, what it had to reach, and both as JSON.

#include <map>
#include <string>
#include <vector>

#include "timing.h"

namespace keel::bench {

class Record {
 public:
  Record(std::map<std::string, std::string> context, std::string path);

  /// A case's times: printed at once, keel's first. `note` goes to the end of the line.
  void add(const std::string& name, const Microseconds& times, const std::string& note = "");
  /// A figure that must be at least (or at most) its target.
  void at_least(const std::string& name, double figure, double target);
  void at_most(const std::string& name, double figure, double target);
  void accuracy(const std::map<std::string, std::string>& row) { accuracy_.push_back(row); }

  void section(const std::string& title) const;
  /// All targets, and how many were missed.
  void print_targets() const;
  /// Written after every section: a run that is cut short leaves what it has.
  void write() const;

 private:
  struct Judged {
    std::string name, relation;
    double figure, target;
    bool reached;
  };
  void judge(const Judged& judged);

  std::map<std::string, std::string> context_;
  std::string path_;
  std::vector<std::pair<std::string, Microseconds>> rows_;
  std::vector<Judged> targets_;
  std::vector<std::map<std::string, std::string>> accuracy_;
};

}  // namespace keel::bench
