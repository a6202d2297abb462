#include "lab/cli/get_data.h"

#include <fmt/format.h>

#include <chrono>

#include "lab/cli/command.h"
#include "lab/cli/options.h"
#include "lab/report/wording.h"
#include "lab/train/signals.h"
#include "lab/train/stopwatch.h"

namespace keel::cli {
namespace {

using Clock = std::chrono::steady_clock;

std::string megabytes(std::int64_t bytes) { return fmt::format("{:.1f}", 1e-6 * double(bytes)); }

/// A progress bar on a terminal, occasional lines elsewhere.
class Meter {
 public:
  explicit Meter(lab::report::StatusLine& line) : line_(line) {}

  void show(std::int64_t done, std::int64_t total) {
    const auto now = Clock::now();
    const bool first = !begun_;
    if (first) begun_ = Begin{now, done};
    if (lab::seconds_since(last_) < (line_.terminal() ? 0.1 : 10) && !first) return;
    if (first && !line_.terminal()) return;
    last_ = now;
    const double passed = lab::seconds_since(begun_->time);
    const auto speed =
        passed > 0.5 ? fmt::format(", {:.1f} MB/s", 1e-6 * double(done - begun_->bytes) / passed)
                     : "";
    const std::string text =
        total > 0 ? fmt::format("{} of {} MB{}", megabytes(done), megabytes(total), speed)
                  : fmt::format("{} MB{}", megabytes(done), speed);
    if (line_.terminal())
      line_.show(fmt::format(
          "downloading {} {}",
          lab::report::bar(double(done) / double(std::max<std::int64_t>(total, 1)), 24), text));
    else
      line_.print("downloading: " + text);
  }

 private:
  struct Begin {
    Clock::time_point time;
    std::int64_t bytes;
  };
  lab::report::StatusLine& line_;
  std::optional<Begin> begun_;
  Clock::time_point last_ = Clock::now();
};

CLI::Validator address() {
  return CLI::Validator(
      [](std::string& given) {
        for (const char* scheme : {"http://", "https://", "file://"})
          if (given.starts_with(scheme)) return std::string();
        return fmt::format("expected an address with http://, https:// or file://, got {}", given);
      },
      "");
}

CLI::Validator checksum() {
  return CLI::Validator(
      [](std::string& given) {
        if (given.size() == 32 && given.find_first_not_of("0123456789abcdef") == given.npos)
          return std::string();
        return fmt::format("expected 32 digits of 0 to f, got {}", given);
      },
      "");
}

}  // namespace

void add_options(CLI::App& app, lab::GetOptions& options) {
  const auto group = [](CLI::Option* option) { return option->group("Download"); };
  CLI::Option* get =
      group(app.add_option(
                "--get", options.source,
                "download a set to the folder that --path names, unless it is already there"))
          ->check(CLI::IsMember({"cifar10", "cifar100"}));
  CLI::Option* url =
      group(app.add_option("--url", options.url, "address of its archive [the original one]"))
          ->type_name("URL")
          ->check(address())
          ->needs(get);
  group(app.add_option("--md5", options.md5,
                       "checksum of the archive, if it is not the original one"))
      ->type_name("DIGITS")
      ->check(checksum())
      ->needs(url);
  group(app.add_option("--timeout", options.download.timeout,
                       "seconds to wait for a server that sends nothing"))
      ->check(within({1, 86400}))
      ->capture_default_str()
      ->needs(get);
}

int get_data(lab::GetOptions get, lab::DataOptions& options, lab::report::StatusLine& line) {
  if (options.path.empty())
    throw UsageError("keel data --get: expected --path, the folder to put the set in, got none");
  Meter meter(line);
  const lab::StopOnSignal signals;
  get.folder = options.path;
  get.download.stop = [&] { return signals.requested(); };
  get.download.progress = [&](std::int64_t done, std::int64_t total) { meter.show(done, total); };
  get.download.say = [&](const std::string& text) { line.print(text); };
  const lab::Got got = lab::get_cifar(get);
  line.clear();
  options.source = get.source;
  if (got.how == lab::Got::kStopped) {
    line.print("interrupted; the downloaded part is kept, and the same command continues");
    return kInterrupted;
  }
  line.print(fmt::format(
      "{} {}", got.folder.string(),
      got.how == lab::Got::kThere ? "is already there: nothing to download" : "is complete"));
  return kDone;
}

std::string train_command(const lab::DataOptions& options) {
  return fmt::format("keel train --source {} --path {} --norm zca --group-size 16", options.source,
                     for_shell(options.path.string()));
}

}  // namespace keel::cli
