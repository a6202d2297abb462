#include "lab/report/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "lab/report/groups.h"
#include "lab/report/wording.h"
#include "lab/require.h"
#include "lab/train/stopwatch.h"

namespace keel::lab::report {
namespace {

constexpr double kSecondsBetweenLines = 10;  // if there is no terminal

}  // namespace

StatusLine::StatusLine(std::FILE* out) : StatusLine(out, isatty(fileno(out)) != 0, 0) {}

StatusLine::StatusLine(std::FILE* out, bool terminal, std::size_t width)
    : out_(out), terminal_(terminal), fixed_width_(width) {}

std::size_t StatusLine::width() const {
  winsize size{};
  if (fixed_width_ > 0) return fixed_width_;
  return ioctl(fileno(out_), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

void StatusLine::show(const std::string& text) {
  if (!terminal_) return;
  // Leaves one column free, because a full line would wrap on some terminals.
  put_raw(out_, "\r\033[K" + cut(harmless(text), width() - 1));
  shown_ = true;
}

void StatusLine::print(const std::string& text) {
  clear();
  put(out_, text + "\n");
}

void StatusLine::clear() {
  if (!shown_) return;
  put_raw(out_, "\r\033[K");
  shown_ = false;
}

std::string bar(double part, std::size_t width) {
  const double share = std::isfinite(part) ? std::clamp(part, 0.0, 1.0) : 0;
  std::string cells(width, '.');
  std::fill_n(cells.begin(), std::lround(share * double(width)), '#');
  return fmt::format("[{}]", cells);
}

void ProgressPrinter::on_start(const RunInfo& info) {
  info_ = info;
  start_ = last_line_ = Clock::now();
  line_.print(fmt::format("{} ({}), {}{}, on {}; {} training and {} test images, {}",
                          info.options.model.name, counted(info.parameters, "parameter"),
                          info.options.model.where == "first" ? "first norm " : "",
                          layer_name(info.options), info.device, info.train_images,
                          info.test_images, counted(info.steps, "step")));
  if (info.first_step > 0) line_.print(fmt::format("resuming after step {}", info.first_step));
}

double ProgressPrinter::seconds_left(std::int64_t step) const {
  const auto done = step - info_.first_step;
  return done > 0 ? seconds_since(start_) / double(done) * double(info_.steps - step)
                  : std::nan("");
}

void ProgressPrinter::on_step(const StepRecord& r) {
  const auto text =
      fmt::format("loss {:.3f}  error {}  {:.0f} images/s  {} left", r.loss, percent(r.error),
                  r.images_per_second, duration(seconds_left(r.step)));
  const auto epoch = fmt::format("epoch {}/{}", r.epoch + 1, info_.options.epochs);
  if (line_.terminal()) {
    line_.show(fmt::format("{} {} {}", epoch, bar(double(r.step) / double(info_.steps), 20), text));
  } else if (seconds_since(last_line_) >= kSecondsBetweenLines) {
    last_line_ = Clock::now();
    line_.print(fmt::format("{}  step {}/{}  {}", epoch, r.step, info_.steps, text));
  }
}

void ProgressPrinter::on_epoch(const EpochRecord& r) {
  last_line_ = Clock::now();
  auto test = std::isnan(r.test_error) ? std::string()
                                       : fmt::format("test loss {:.3f} error {}  ", r.test_loss,
                                                     percent(r.test_error, 2));
  if (!std::isnan(r.recalibrated_test_error))
    test += fmt::format("recalibrated {}  ", percent(r.recalibrated_test_error, 2));
  if (!std::isnan(r.followed_test_error))
    test += fmt::format("followed {}  ", percent(r.followed_test_error, 2));
  line_.print(fmt::format("epoch {}/{}  training loss {:.3f} error {}  {}{}", r.epoch + 1,
                          info_.options.epochs, r.train_loss, percent(r.train_error), test,
                          duration(r.seconds)));
}

void ProgressPrinter::on_failure(const Failure& failure) { line_.print("failed: " + failure.what); }

void ProgressPrinter::on_message(const std::string& message) { line_.print(message); }

void ProgressPrinter::on_finish(const Result& result) {
  auto text = fmt::format("{} after {}", result.status, counted(result.steps, "step"));
  if (std::isfinite(result.test_error) && result.status != "failed")
    text += fmt::format(", test error {}", percent(result.test_error, 2));
  if (std::isfinite(result.recalibrated_test_error) && result.status != "failed")
    text += fmt::format(", recalibrated {}", percent(result.recalibrated_test_error, 2));
  if (std::isfinite(result.followed_test_error) && result.status != "failed")
    text += fmt::format(", followed {}", percent(result.followed_test_error, 2));
  if (result.images_per_second > 0)
    text += fmt::format(", {:.0f} images/s", result.images_per_second);
  line_.print(fmt::format("{}, {}", text, duration(result.seconds)));
}

}  // namespace keel::lab::report
