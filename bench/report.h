#pragma once

// Medians of all benchmarks, as a table of ratios to keel and as JSON with the machine's
// description.

#include <benchmark/benchmark.h>

#include <map>
#include <string>
#include <vector>

namespace keel::bench {

/// The largest relative residual and departure from orthogonality in a batch.
struct Errors {
  double residual, orthogonality;
};

using AccuracyRow = std::map<std::string, std::string>;

/// A row for the record; also prints it. `column` names the size's column.
AccuracyRow accuracy_row(const char* column, const std::string& size, const Errors& keel,
                         const Errors& lapack);

/// Benchmarks are named "stage/pass/n=64/batch=256/peer"; those that differ only in the peer share
/// a row.
class Report : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override;
  void ReportRuns(const std::vector<Run>& runs) override;

  /// Puts the rows in the order of registration.
  void sort();
  /// Ratios peer / keel: above 1 keel is faster. One table per stage and pass.
  void print() const;
  void write_json(const std::string& path, const std::map<std::string, std::string>& context,
                  const std::vector<AccuracyRow>& accuracy) const;
  bool failed() const { return failed_; }

 private:
  struct Row {
    std::string name;
    std::map<std::string, double> microseconds;  // by peer
  };
  std::vector<Row> rows_;
  bool failed_ = false;
};

}  // namespace keel::bench
