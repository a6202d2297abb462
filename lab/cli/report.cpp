#include "lab/report/page.h"
#include "lab/report/wording.h"
#include "lab/storage/own_files.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <filesystem>
#include <set>

#include "lab/cli/command.h"
#include "lab/require.h"
#include "lab/storage/files.h"

namespace keel::cli {
namespace {

using lab::report::put;

namespace fs = std::filesystem;

bool is_run(const fs::path& folder) { return fs::exists(folder / lab::run_files::kMetrics); }

/// The folder itself if it is a run, otherwise the runs in it, by name.
std::vector<fs::path> run_folders(const fs::path& where) {
  if (is_run(where)) return {where};
  std::vector<fs::path> found;
  if (fs::is_directory(where)) {
    for (const auto& entry : fs::directory_iterator(where))
      if (entry.is_directory() && is_run(entry.path())) found.push_back(entry.path());
  }
  require(!found.empty(), "expected a run folder, or a folder of them; {} has no metrics.jsonl",
          where.string());
  std::ranges::sort(found);
  return found;
}

}  // namespace

int report(const std::vector<std::string>& arguments) {
  std::vector<std::string> where;
  std::string out = "report.html", title = "Training report";
  const auto app = make_app(
      "report",
      "Prints a table of runs and writes one self-contained HTML page about them. Runs that differ "
      "only in their seed, or in the machine, the evaluation or the files, are one entry.");
  app->add_option("RUN", where, "run folders, or folders of run folders")->required();
  app->add_option("--out", out,
                  "the page; in a folder: report.html. Its numbers are beside it, as .csv")
      ->type_name("FILE")
      ->capture_default_str();
  app->add_option("--title", title, "its title")->capture_default_str();
  if (const auto code = parse(*app, arguments)) return *code;
  std::vector<lab::report::Run> runs;
  std::set<fs::path> seen;
  for (const auto& one : where)
    for (const auto& folder : run_folders(one)) {
      if (!seen.insert(fs::canonical(folder)).second) continue;  // named twice, not run twice
      runs.push_back(lab::report::read_run(folder));
      for (const auto& note : runs.back().notes) put(stderr, "{}\n", note);
    }
  const auto groups = lab::report::grouped(runs);
  const std::time_t now = std::time(nullptr);
  const auto made_by =
      fmt::format("Made by {}, {:%Y-%m-%d %H:%M}.", version(), *std::localtime(&now));
  if (fs::is_directory(out) || !fs::path(out).has_filename())
    out = (fs::path(out) / "report.html").string();
  const auto csv = fs::path(out).replace_extension(".csv").string();
  of_the_command_line([&] {
    lab::check_marked(out, lab::report::kPageMark);
    lab::check_marked(csv, lab::report::kValuesMark);
    require(csv != out, "expected a page as --out, not a .csv, got {}", out);
  });
  if (fs::path(out).has_parent_path()) fs::create_directories(fs::path(out).parent_path());
  lab::write_file_atomically(out,
                             lab::report::page(groups, {title, made_by, fs::path(csv).filename()}));
  lab::write_file_atomically(csv, lab::report::values(groups));
  put(stdout, "{}\nwrote {} and {}\n", lab::report::results_table(groups).aligned(), out, csv);
  return kDone;
}

}  // namespace keel::cli
