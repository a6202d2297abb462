#include "lab/reproduce/page.h"

#include <gtest/gtest.h>

#include "experiments.h"
#include "lab/tests/report/run_files.h"

namespace keel::lab::reproduce {
namespace {

namespace fs = std::filesystem;
using report::testing::read;

Recipe recipe() {
  Recipe one;
  one.name = "table";
  one.title = "A table";
  one.kind = "training";
  Cell svd, ours, more;
  svd.name = "svd", svd.row = "SVD", svd.column = "d = 4", svd.x = 4;
  svd.paper = {4.59, 4.54, 0.08, 46.7};
  ours.name = "ours", ours.row = "Ours", ours.column = "d = 4", ours.x = 4;
  more.name = "more", more.row = "Ours", more.column = "d = 8", more.x = 8;
  one.cells = {svd, ours, more};
  return one;
}

Trial trial(const std::string& cell, std::uint64_t seed, double error) {
  Trial one{.cell = cell, .seed = seed, .result = {.status = "finished", .test_error = error}};
  one.at = {10, 20}, one.loss = {2, 1}, one.gradient = {1, 1};
  return one;
}

Results results() {
  Results one;
  one.experiment = "table";
  one.schedule = "short";
  one.options = {{"epochs", 6}};
  one.data = Data{"shapes", 10, 1000, 100};
  one.origins = {
      {"2026-01-01", "keel reproduce table", "abc", "0.1", "2.0", "13.0", "GPU", "CPU", 4}};
  one.trials = {trial("svd", 2, 0), trial("ours", 1, 0.10), trial("ours", 2, 0.12),
                trial("svd", 1, 0.2)};
  one.trials[0].result.status = "failed";
  one.trials[0].result.failure =
      Failure{.step = 33, .where = "", .layer = "", .what = "step 33: it broke"};
  return one;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Pages, ATableHasThePapersFiguresBesideOurs) {
  const Page got = page(recipe(), results());
  EXPECT_TRUE(has(got.markdown,
                  "| SVD | d = 4 | 4.59 | 4.54 ± 0.08 | 46.7 % | 20.00 | 20.00 | 1 of 2 | 33 |"))
      << got.markdown;
  // Mean of 10 and 12 with the deviation of a sample, sqrt(2).
  EXPECT_TRUE(has(got.markdown, "| Ours | d = 4 |  |  |  | 10.00 | 11.00 ± 1.41 | 2 of 2 |  |"));
  EXPECT_TRUE(has(got.markdown, "Not run: Ours, d = 8."));
  EXPECT_TRUE(has(got.markdown, "SVD, d = 4, seed 2: step 33: it broke"));
  EXPECT_TRUE(has(got.markdown, "shapes (10 classes, 1000 training and 100 test images)"));
  EXPECT_TRUE(
      has(got.markdown, "GPU; LibTorch 2.0, CUDA 13.0, keel 0.1 at abc; `keel reproduce table`"));
  ASSERT_EQ(got.pictures.count("errors.svg"), 1u);
  EXPECT_TRUE(has(got.pictures.at("errors.svg"), ">Ours<"));
  EXPECT_EQ(report::testing::first_unbalanced(got.pictures.at("errors.svg")), "");
}

// results.json may come from anyone, and a README is shown as HTML.
TEST(Pages, ResultsBringNoHtml) {
  Results one = results();
  const std::string html = "<img src=x onerror='run()'>";
  one.data->name = one.options["model"] = one.trials[0].result.failure->what = html;
  for (auto text : {&Origin::date, &Origin::libtorch, &Origin::cuda, &Origin::device, &Origin::keel,
                    &Origin::tree})
    one.origins[0].*text = html;
  one.origins[0].command = "keel`" + html + "`";
  const Page got = page(recipe(), one);
  EXPECT_TRUE(has(got.markdown, "&lt;img src=x")) << got.markdown;
  EXPECT_TRUE(has(got.markdown, "`keel'" + html + "'`")) << got.markdown;  // code
  for (std::size_t at = 0; (at = got.markdown.find("<img", at)) != std::string::npos; ++at)
    EXPECT_EQ(got.markdown.substr(at - 6, 6), "`keel'");
  EXPECT_FALSE(has(index_page({recipe()}, {one}), "<img"));
}

TEST(Pages, FollowedErrorsHaveColumns) {
  Results one = results();
  for (Trial& trial : one.trials) {
    if (trial.cell != "ours") continue;
    trial.result.followed_test_error = 0.12;
    trial.recalibrated_errors = {0.5, 0.25, 0.11};
    trial.followed_errors = {0.9, 0.24, 0.1225};  // the first evaluation does not count
  }
  const std::string markdown = page(recipe(), one).markdown;
  EXPECT_TRUE(has(markdown, "| recalibrated: mean | followed: mean | farthest apart |"))
      << markdown;
  EXPECT_TRUE(has(markdown, "| 12.00 ± 0.00 | 1.25 |")) << markdown;
  EXPECT_TRUE(has(markdown, "Followed: ")) << markdown;
  EXPECT_FALSE(has(page(recipe(), results()).markdown, "ollowed"));
}

TEST(Pages, NothingRunIsSaid) {
  const Page got = page(recipe(), Results());
  EXPECT_TRUE(has(got.markdown, "| SVD | d = 4 | 4.59 | 4.54 ± 0.08 | 46.7 % | not run |"));
  EXPECT_TRUE(has(got.markdown, "**Not run yet.**"));
  EXPECT_TRUE(got.pictures.empty());
}

// Every page in the tree matches its recipe and results, so nobody has changed one without the other. `keel reproduce
// --page` writes them.
TEST(Pages, TheCommittedOnesAreUpToDate) {
  const auto recipes = read_recipes(kExperiments);
  std::vector<Results> all;
  for (const Recipe& one : recipes) {
    const fs::path folder = kExperiments / one.name;
    all.push_back(read_results(results_file(one, folder)));
    const Page wanted = page(one, all.back());
    EXPECT_EQ(read(folder / "README.md"), wanted.markdown) << folder;
    std::vector<std::string> drawn;
    for (const auto& entry : fs::directory_iterator(folder))
      if (entry.path().extension() == ".svg") drawn.push_back(entry.path().filename().string());
    EXPECT_EQ(drawn.size(), wanted.pictures.size()) << folder;
    for (const auto& [name, svg] : wanted.pictures)
      EXPECT_EQ(read(folder / name), svg) << folder / name;
  }
  EXPECT_EQ(read(kExperiments / "README.md"), index_page(recipes, all));
}

TEST(Pages, TheCommittedFilesAreLight) {
  for (const auto& entry : fs::recursive_directory_iterator(kExperiments)) {
    if (entry.path().extension() == ".svg") {
      EXPECT_LT(entry.file_size(), 60'000u) << entry.path();
    } else if (entry.path().extension() == ".json") {
      EXPECT_LT(entry.file_size(), 200'000u) << entry.path();
    }
  }
}

}  // namespace
}  // namespace keel::lab::reproduce
