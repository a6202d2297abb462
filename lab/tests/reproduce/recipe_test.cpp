#include "lab/reproduce/recipe.h"

#include <gtest/gtest.h>

#include "experiments.h"
#include "lab/tests/report/run_files.h"
#include "support/errors.h"

namespace keel::lab::reproduce {
namespace {

using report::testing::TemporaryFolder;
using report::testing::write;

const Json kData = {{"source", "packed"}, {"path", "data.pack"}};

Recipe recipe(const std::string& text) {
  const TemporaryFolder folder;
  write(folder / "recipe.toml", text);
  return read_recipe(folder / "recipe.toml");
}

std::string message_of(const std::string& text) {
  return keel::testing::error_of([&] { recipe(text); });
}

TEST(Recipe, EveryCommittedCellIsATraining) {
  std::int64_t cells = 0;
  for (const Recipe& one : read_recipes(kExperiments)) {
    if (one.kind != "training") continue;
    EXPECT_TRUE(one.schedules.contains(one.default_schedule)) << one.name;
    for (const Cell& cell : one.cells) {
      for (const auto& [schedule, options] : one.schedules.items())
        EXPECT_NO_THROW(cell_options(one, cell, schedule, kData)) << one.name << " " << cell.name;
      cells += cell.same_as.empty();
    }
  }
  EXPECT_GT(cells, 70);
}

TEST(Recipe, ACellsNameStaysInItsFolder) {
  for (const std::string name : {"../../x", "..", "a/b", ".hidden", "", "a\tb"})
    EXPECT_NE(message_of("[cells.\"" + name + "\"]\n").find("expected a cell's name"),
              std::string::npos)
        << name;
  EXPECT_EQ(message_of("[cells.\"v1.5-a_b\"]\n[schedule.short]\n"), "no error");
}

TEST(Recipe, FiguresDrawCellsThatAreRun) {
  for (const Recipe& one : read_recipes(kExperiments)) {
    if (one.results_of.empty()) continue;
    const Recipe source = read_recipe(kExperiments / one.results_of / "recipe.toml");
    for (const Cell& cell : one.cells)
      EXPECT_NE(source.find(cell.name), nullptr) << one.name << " " << cell.name;
  }
}

TEST(Recipe, TheCommandLineWinsOverTheCellOverTheScheduleOverCommon) {
  const Recipe one = recipe(
      "[common]\nbatch = 1\nepochs = 1\nseed = 1\nmomentum = 0.5\n[schedule.short]\nepochs = "
      "2\nbatch = 2\n"
      "seed = 2\n[cells.a]\ntrain = { batch = 3, seed = 3 }\n");
  const auto options = cell_options(one, one.cells[0], "short", {{"seed", 4u}});
  EXPECT_EQ(options.momentum, 0.5);
  EXPECT_EQ(options.epochs, 2);
  EXPECT_EQ(options.batch, 3);
  EXPECT_EQ(options.seed, 4u);
}

TEST(Recipe, MistakesAreNamed) {
  EXPECT_NE(message_of("titel = \"x\"").find("unknown name 'titel'"), std::string::npos);
  EXPECT_NE(message_of("[cells.a]\nrule = \"x\"").find("cells.a.rule: unknown name 'rule'"),
            std::string::npos);
  EXPECT_NE(message_of("[cells.a]\npaper = { mena = 1 }").find("'mena'"), std::string::npos);
  EXPECT_NE(message_of("[cells.a]\nsame_as = \"b\"").find("no cell is called 'b'"),
            std::string::npos);
  EXPECT_NE(message_of("default_schedule = \"long\"\n[schedule.short]\n")
                .find("no schedule is called 'long'"),
            std::string::npos);
  for (const char* text : {"\ntrials = \"x\"", "\ntrials = 1.5", "\ntrials = true",
                           "\ntrials = 1e999", "\ntrials = 3,5", "trials = 3\ntrials = 4"})
    for (const char* part : {"recipe.toml, line 2: ", "trials"})
      EXPECT_NE(message_of(text).find(part), std::string::npos) << message_of(text);
  for (const char* text :
       {"[common]\nepochs = \"x\"", "[schedule.short]\nepochs = true", "[common]\nbatch = \"x\"",
        "[schedule]\nshort = 1", "[settings]\ncost = 1", "[settings]\nx_label = 1",
        "[settings]\ngradients = \"x\""})
    EXPECT_NE(message_of(text).find("line 2: "), std::string::npos) << message_of(text);
  EXPECT_NE(message_of("[cells]\na = 1").find("line 2: cells.a: expected a table"),
            std::string::npos);
  EXPECT_NE(
      message_of("[cells.a]\nx = true").find("line 2: cells.a.x: expected a number, got true"),
      std::string::npos);
  const Recipe wrong = recipe("[cells.a]\ntrain = { rule = \"svd\" }\n[schedule.short]\n");
  EXPECT_THROW(cell_options(wrong, wrong.cells[0], "short", Json::object()), Error);
  EXPECT_THROW(cell_options(wrong, wrong.cells[0], "paper", Json::object()), Error);
}

}  // namespace
}  // namespace keel::lab::reproduce
