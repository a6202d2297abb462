// Whatever a user has around, and whatever the options: only files that keel made change.

#include <map>
#include <random>

#include "lab/storage/own_files.h"
#include "lab/tests/cli/program.h"

namespace keel::cli::testing {
namespace {

void expect_unchanged(const fs::path& folder, const Snapshot& before, const std::string& what) {
  const Snapshot now = snapshot(folder);
  for (const auto& [path, content] : before) {
    const auto found = now.find(path);
    ASSERT_TRUE(found != now.end()) << path << " is gone after " << what;
    ASSERT_TRUE(found->second == content) << path << " has changed after " << what;
  }
}

const std::string kRun = "train" + kTiny + "--norm zca --width 4 --checkpoint-every 3 ";

/// A run of eight steps with three checkpoints.
fs::path small_run(const fs::path& folder) {
  const auto outcome = keel(kRun + "--run " + folder.string());
  EXPECT_EQ(outcome.code, 0) << outcome.error;
  return folder;
}

TEST(CliOwnFiles, AResumeThatCannotGoOnTouchesNothing) {
  const TemporaryFolder folder;
  const auto whole = small_run(folder / "whole"), run = folder / "run",
             newest = run / "checkpoints/step-00000008.safetensors";
  const std::string again =
      "keel train --config " + run.string() + "/config.toml --run " + run.string() + " --overwrite";
  const auto refused = [&](const std::string& said, const auto& damage) {
    fs::remove_all(run);
    fs::copy(whole, run, fs::copy_options::recursive);
    damage();
    const auto before = snapshot(folder.path());
    const auto outcome = keel("train --resume " + run.string());
    EXPECT_EQ(outcome.code, 3) << outcome.error;
    EXPECT_TRUE(contains(outcome.error, said)) << outcome.error;
    EXPECT_EQ(snapshot(folder.path()), before) << said;
  };
  refused(newest.string(), [&] {  // stands for a file of another user, which root could read
    fs::remove(newest);
    fs::create_symlink(newest.filename(), newest);
  });
  // As `cp run/* copy` leaves it out. Such a run could write nothing, and would say so only step by step.
  refused(".keel-files", [&] { fs::remove(run / ".keel-files"); });
  refused(again, [&] {
    for (const auto& entry : fs::directory_iterator(run / "checkpoints"))
      if (entry.path().extension() == ".json") write(entry.path(), "{");
  });
  EXPECT_EQ(keel(again.substr(5)).code, 0);
  EXPECT_EQ(json(run / "result.json").at("steps"), 8);
}

TEST(CliOwnFiles, AFolderOfSomethingElseIsNoRunFolder) {
  const TemporaryFolder folder;
  write(folder / "project/config.toml", "epochs = 1\ntrain_limit = 64\n");
  write(folder / "project/result.json", "mine");
  write(folder / "thesis/checkpoints/thesis.txt", "mine");
  fs::create_symlink("nowhere", folder / "dangling");
  const auto before = snapshot(folder.path());
  for (const char* name : {"project", "thesis", "dangling"})
    for (const char* more : {"", " --overwrite"}) {
      const auto outcome = keel(kRun + "--config " + (folder / "project/config.toml").string() +
                                " --run " + (folder / name).string() + more);
      EXPECT_TRUE(outcome.code == 2 || outcome.code == 3) << name << more << outcome.error;
      EXPECT_TRUE(contains(outcome.error, (folder / name).string())) << outcome.error;
    }
  EXPECT_EQ(snapshot(folder.path()), before);
}

TEST(CliOwnFiles, OverwritingARunLeavesWhatOthersPutThere) {
  const TemporaryFolder folder;
  const auto run = small_run(folder / "run");
  write(run / "notes.txt", "mine");
  write(run / "report.html.mine", "mine");
  write(run / "checkpoints/thesis.txt", "mine");
  const auto overwrite = kRun + "--overwrite --run " + run.string();
  EXPECT_EQ(keel(overwrite).code, 0);
  for (const char* name : {"notes.txt", "report.html.mine", "checkpoints/thesis.txt"})
    EXPECT_EQ(read(run / name), "mine") << name;
  // What has the name of a file of the run, and is none, or a link.
  write(folder / "secret", "mine");
  for (const bool link : {false, true}) {
    fs::remove(run / "result.json");
    lab::OwnFiles(run).remove({"result.json"});
    if (link)
      fs::create_symlink(folder / "secret", run / "result.json");
    else
      write(run / "result.json", "mine");
    const auto before = snapshot(folder.path());
    for (const auto& command : {overwrite, "train --resume " + run.string()}) {
      const auto outcome = keel(command);
      EXPECT_EQ(outcome.code, 3) << outcome.error;
      EXPECT_TRUE(contains(outcome.error, (run / "result.json").string())) << outcome.error;
    }
    EXPECT_EQ(snapshot(folder.path()), before);
  }
}

TEST(CliOwnFiles, ARunFolderThatIsTakenAwayIsSaidAndNotMadeAgain) {
  const TemporaryFolder folder;
  const auto run = folder / "run", moved = folder / "moved";
  for (const bool made_again : {false, true}) {
    const auto outcome = shell(
        "\"$keel\" train" + kTiny + "--epochs 100000 --checkpoint-every 1 --run " + run.string() +
        " & pid=$!\n" + wait_for_first_step(run) + "mv " + run.string() + " " + moved.string() +
        (made_again ? "; mkdir " + run.string() : "") + "\nkill -TERM $pid; wait $pid");
    EXPECT_EQ(outcome.code, 1) << outcome.error;
    EXPECT_TRUE(contains(outcome.error, run.string() + " is no folder of keel's (any more)"))
        << outcome.error;
    EXPECT_EQ(fs::exists(run), made_again);
    EXPECT_TRUE(!made_again || fs::is_empty(run));
    fs::remove_all(moved);
  }
}

TEST(CliOwnFiles, ASignalOrALostTerminalOrReaderEndsARunWithACheckpoint) {
  const TemporaryFolder folder;
  for (const std::string how : {"TERM", "HUP", "PIPE"}) {
    const auto run = folder / how;
    const auto train = "\"$keel\" train" + kTiny + "--epochs 100000 --run " + run.string();
    const auto killed =
        " & pid=$!\n" + wait_for_first_step(run) + "kill -" + how + " $pid; wait $pid";
    const auto outcome =
        shell(train + (how == "PIPE" ? " 2>&1 | head -n 3; exit ${PIPESTATUS[0]}" : killed));
    EXPECT_EQ(outcome.code, 5) << how << outcome.error;
    EXPECT_EQ(json(run / "result.json").at("status"), "interrupted") << how;
    EXPECT_FALSE(fs::is_empty(run / "checkpoints")) << how;
  }
}

TEST(CliOwnFiles, AReportReplacesOnlyReports) {
  const TemporaryFolder folder;
  const auto run = small_run(folder / "run"), page = folder / "page.html";
  write(folder / "secret", "mine");
  fs::create_symlink("secret", folder / "page.html.unfinished");
  const auto report = "report " + run.string() + " --out " + page.string();
  EXPECT_EQ(keel(report).code, 0);
  EXPECT_EQ(keel(report).code, 0);  // its own
  write(page, "mine");
  const auto outcome = keel(report);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_TRUE(contains(outcome.error, page.string())) << outcome.error;
  EXPECT_EQ(read(page), "mine");
  EXPECT_EQ(read(folder / "secret"), "mine");
}

/// What a user, or an enemy, may have around.
class Surroundings {
 public:
  explicit Surroundings(std::uint64_t seed) : random_(seed) {}

  std::size_t below(std::size_t count) { return std::size_t(random_() % count); }
  bool by_chance() { return below(2) == 0; }
  template <typename Item>
  const Item& one_of(const std::vector<Item>& items) {
    return items[below(items.size())];
  }

  /// Puts foreign things below a folder, where nothing is in their place.
  void fill(const fs::path& folder, const fs::path& others, const fs::path& secret) {
    const std::vector<std::string> names = {"config.toml",
                                            "metrics.jsonl",
                                            "result.json",
                                            "spectrum.json",
                                            "report.html",
                                            "page.html",
                                            "config.toml.unfinished",
                                            "report.html.unfinished",
                                            "result.json.unfinished",
                                            ".keel-files.unfinished",
                                            "checkpoints/thesis.txt",
                                            "checkpoints/step-00000002.json",
                                            "checkpoints/step-00000099.safetensors",
                                            "step-00000008.json.unfinished",
                                            "notes.txt"};
    for (const auto& name : names) {
      const fs::path file = folder / name;
      if (below(4) > 0 || fs::exists(fs::symlink_status(file))) continue;
      fs::create_directories(file.parent_path());
      switch (below(4)) {
        case 0:
          fs::create_symlink(secret, file);
          break;
        case 1:
          fs::create_symlink("nowhere", file);
          break;
        default:
          write(file, "mine " + name);
      }
    }
    if (below(3) > 0) return;
    for (const auto& entry : fs::directory_iterator(others / "checkpoints"))
      if (const auto to = folder / "checkpoints" / entry.path().filename(); by_chance()) {
        fs::create_directories(to.parent_path());
        if (!fs::exists(fs::symlink_status(to))) fs::copy_file(entry.path(), to);
      }
  }

 private:
  std::mt19937_64 random_;
};

TEST(CliOwnFiles, WhateverTheOptionsOnlyItsOwnFilesChange) {
  const char* given = std::getenv("KEEL_ROUNDS");
  const int rounds = given ? std::atoi(given) : 24;
  const TemporaryFolder base;
  const auto ours = small_run(base / "ours"), others = small_run(base / "others");
  const auto here = fs::current_path();
  std::map<int, int> codes;
  for (int round = 0; round < rounds; ++round) {
    Surroundings around{std::uint64_t(round)};
    const TemporaryFolder folder;
    fs::copy(ours, folder / "run", fs::copy_options::recursive);
    write(folder / "secret", "a secret");
    std::set<std::string> of_keel;
    for (const auto& [path, what] : snapshot(folder / "run")) of_keel.insert(path);
    if (around.by_chance()) fs::create_directory(folder / "empty");
    for (const char* name : {"", "run", "project"})
      around.fill(folder / name, others, folder / "secret");
    fs::create_directory_symlink("run", folder / "link to run");
    Snapshot foreign = snapshot(folder.path());
    std::erase_if(foreign, [&](const auto& item) { return of_keel.count(item.first) > 0; });

    const std::vector<std::string> folders = {"run", "run",    "project",      "empty",
                                              ".",   "absent", "'link to run'"};
    const auto any = [&] { return around.one_of(folders); };
    const std::string page = around.one_of(
        std::vector<std::string>{"", "--out page.html", "--out project", "--out run/report.html"});
    const std::vector<std::string> commands = {
        kRun + "--run " + any() + (around.by_chance() ? " --overwrite" : ""),
        kRun + "--run " + any() + " --config run/config.toml --overwrite",
        "train --resume " + any(),
        "train --resume " + any() + " --keep 1",
        "report " + any() + " " + page,
        "inspect " + any(),
        "eval " + any()};
    fs::current_path(folder.path());
    for (int call = 0; call < 2; ++call) {
      const std::string& command = around.one_of(commands);
      const auto outcome = keel(command);
      EXPECT_LT(outcome.code, 8) << command << outcome.error;
      ++codes[outcome.code];
      expect_unchanged(folder.path(), foreign, command + " (round " + std::to_string(round) + ")");
    }
    fs::current_path(here);
  }
  if (!given) {  // some must be refused and some do their work
    EXPECT_GE(codes[0], 6);
    EXPECT_GE(codes[2] + codes[3], 6);
  }
}

}  // namespace
}  // namespace keel::cli::testing
