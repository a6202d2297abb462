#pragma once

// The progress display of a run: a bar that is redrawn on a terminal, plain lines elsewhere.

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

#include "lab/train/trainer.h"

namespace keel::lab::report {

/// A line that is redrawn in place, below permanent lines that scroll.
class StatusLine {
 public:
  /// `terminal` says whether `out` is one. The first form asks the system.
  explicit StatusLine(std::FILE* out);
  StatusLine(std::FILE* out, bool terminal, std::size_t width = 80);
  ~StatusLine() { clear(); }
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  bool terminal() const { return terminal_; }
  /// Redraws the line, cut to the terminal's width. Does nothing without a terminal.
  void show(const std::string& text);
  /// Prints a permanent line.
  void print(const std::string& text);
  void clear();

 private:
  std::size_t width() const;

  std::FILE* out_;
  bool terminal_;
  std::size_t fixed_width_;
  bool shown_ = false;
};

/// `width` columns, a fraction `part` of them filled.
std::string bar(double part, std::size_t width);

class ProgressPrinter : public Observer {
 public:
  explicit ProgressPrinter(StatusLine& line) : line_(line) {}

  void on_start(const RunInfo& info) override;
  void on_step(const StepRecord& record) override;
  void on_epoch(const EpochRecord& record) override;
  void on_failure(const Failure& failure) override;
  void on_message(const std::string& message) override;
  void on_finish(const Result& result) override;

 private:
  double seconds_left(std::int64_t step) const;

  using Clock = std::chrono::steady_clock;
  StatusLine& line_;
  RunInfo info_;
  Clock::time_point start_, last_line_;
};

}  // namespace keel::lab::report
