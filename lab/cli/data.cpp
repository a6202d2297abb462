#include <fmt/format.h>
#include <torch/types.h>

#include <chrono>

#include "keel/torch/threads.h"
#include "lab/cli/command.h"
#include "lab/cli/options.h"
#include "lab/data/data_set.h"
#include "lab/data/get_cifar.h"
#include "lab/report/progress.h"
#include "lab/report/put.h"
#include "lab/report/wording.h"
#include "lab/storage/files.h"
#include "lab/train/signals.h"
#include "lab/train/stopwatch.h"

namespace keel::cli {
namespace {

using lab::report::put;

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

void add_download_options(CLI::App& app, lab::GetOptions& options) {
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

/// Downloads the set into options.path unless it exists, and makes it the source. Returns kDone or kInterrupted.
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

void print_summary(const lab::DataSet& data) {
  const auto& pixels = data.train.pixels;
  put(stdout, "{}: {} training and {} test images of {} x {}, {} classes\n", data.name,
      data.train.count(), data.test.count(), pixels.size(2), pixels.size(3), data.classes.size());
  put(stdout, "mean {:.4f} {:.4f} {:.4f}, deviation {:.4f} {:.4f} {:.4f}\n", data.mean[0],
      data.mean[1], data.mean[2], data.deviation[0], data.deviation[1], data.deviation[2]);
  for (const auto& note : data.notes) put(stdout, "{}\n", note);
  const auto classes = std::int64_t(data.classes.size());
  const auto train = torch::bincount(data.train.labels, {}, classes);
  const auto test = torch::bincount(data.test.labels, {}, classes);
  std::size_t width = 5;
  for (const auto& name : data.classes) width = std::max(width, lab::report::columns(name));
  put(stdout, "\n{:<{}}  {:>8}  {:>8}\n", "class", width, "training", "test");
  for (std::int64_t i = 0; i < classes; ++i) {
    put(stdout, "{:<{}}  {:>8}  {:>8}\n", data.classes[std::size_t(i)], width,
        train[i].item<std::int64_t>(), test[i].item<std::int64_t>());
  }
}

}  // namespace

int data(const std::vector<std::string>& arguments) {
  std::string packed, name;
  lab::GetOptions get;
  lab::TrainOptions options;
  const auto app = make_app("data",
                            "Downloads a data set, prints what is in it, or packs it into one file "
                            "that loads fast.");
  add_download_options(*app, get);
  app->add_option("--pack", packed, "write the packed form to this file")->type_name("FILE");
  app->add_option("--name", name, "new name of the packed set [its own name]");
  add_options(*app, options, data_option_names());
  app->get_option("--get")->excludes(app->get_option("--source"));
  if (const auto code = parse(*app, arguments)) return *code;
  keel::use_all_cores();
  lab::report::StatusLine line(stderr);
  if (!get.source.empty())
    if (const int code = get_data(get, options.data, line); code != kDone) return code;
  of_the_command_line([&] { validate(options.data); });
  if (!packed.empty()) lab::check_writable(packed);
  const lab::Progress progress = lab::report::shown_on(line);
  lab::DataSet set = lab::load(options.data, progress);
  line.clear();
  if (!name.empty()) set.name = name;
  print_summary(set);
  if (!packed.empty()) {
    lab::pack(set, packed, progress);
    line.clear();
    put(stdout, "\n{}: {} bytes; `keel train --source packed --path {}` reads it\n", packed,
        std::filesystem::file_size(packed), for_shell(packed));
  }
  if (!get.source.empty())
    put(stdout,
        "\nto train on it:\n  keel train --source {} --path {} --norm zca --group-size 16\n",
        options.data.source, for_shell(options.data.path.string()));
  return kDone;
}

}  // namespace keel::cli
