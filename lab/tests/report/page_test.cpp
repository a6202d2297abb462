#include "lab/report/page.h"

#include <gtest/gtest.h>

#include <regex>

#include "lab/report/wording.h"
#include "lab/tests/report/run_files.h"

namespace keel::lab::report {
namespace {

using testing::first_unbalanced;
using testing::settings;
using testing::TemporaryFolder;

std::string example_page(const TemporaryFolder& folder) {
  testing::write_run(folder / "a", settings("batch", "exact", 0), "0.20");
  testing::write_run(folder / "b", settings("zca", "exact", 0), "0.10");
  testing::write_run(folder / "c", settings("zca", "exact", 1), "0.14");
  testing::write_failed_run(folder / "d", settings("zca", "analytic", 0), 3);
  testing::write(
      folder / "b" / "spectrum.json",
      R"({"layers":[{"name":"bn1","values":[[2,0.0001,0.0001]],"covariance":[[[2,0,0],[0,0,0],[0,0,0]]]}]})");
  std::vector<Run> runs;
  for (const char* name : {"a", "b", "c", "d"}) runs.push_back(read_run(folder / name));
  return page(grouped(runs), {"A <title>", "made & tested"});
}

TEST(Page, IsWellFormed) {
  const TemporaryFolder folder;
  EXPECT_EQ(first_unbalanced(example_page(folder)), "");
}

// A run without settings is labelled with its folder's name, which may be long and have no blank to break at.
TEST(Page, ALongLabelIsCutInPictures) {
  const TemporaryFolder folder;
  const std::string name(200, 'w');
  testing::write_run(folder / name, "", "0.20");
  testing::write_run(folder / "other", settings("batch", "exact", 0), "0.10");
  const auto html = page(grouped({read_run(folder / name), read_run(folder / "other")}), {});
  const std::regex text("<text class='name'[^>]*>(<title>[^<]*</title>)?([^<]*)</text>");
  int names = 0;
  for (std::sregex_iterator i(html.begin(), html.end(), text), end; i != end; ++i, ++names)
    EXPECT_LE(columns((*i)[2]), 110u) << (*i)[2];
  EXPECT_EQ(names, 2);  // the keys of the curves
}

TEST(Page, ItsValuesAreALineEach) {
  const TemporaryFolder folder;
  testing::write_run(folder / "=a\"b", settings("batch", "exact", 7), "0.20");
  const auto csv = values(grouped({read_run(folder / "=a\"b")}));
  EXPECT_TRUE(csv.starts_with("layer,folder,seed,step,epoch,quantity,value\n")) << csv;
  const auto name = (folder / "=a").string() + "\"\"b";
  EXPECT_NE(csv.find("\n\"BatchNorm\",\"" + name + "\",\"7\",20,1,test_error,0.2\n"), csv.npos)
      << csv;
  EXPECT_NE(csv.find(",10,0,learning_rate,0.1\n"), csv.npos) << csv;
  EXPECT_EQ(csv.find("followed"), csv.npos) << csv;  // not done, so not there
  // A label that a spreadsheet would take for a formula.
  auto groups = grouped({read_run(folder / "=a\"b")});
  groups[0].label = "=1+1";
  EXPECT_NE(values(groups).find("\n\"'=1+1\","), csv.npos);
}

TEST(Page, LeadsToItsValues) {
  const TemporaryFolder folder;
  const auto html = page(grouped(example_runs(folder)), {.numbers = "a&b.csv"});
  EXPECT_NE(html.find("<a href='./a&amp;b.csv'>a&amp;b.csv</a>"), html.npos);
}

TEST(Page, LoadsNothing) {
  const TemporaryFolder folder;
  const auto html = example_page(folder);
  for (const char* word : {"https:", "src=", "href=", "url(", "@import", "<script"})
    EXPECT_EQ(html.find(word), std::string::npos) << word;
}

TEST(Page, ShowsWhatItShould) {
  const TemporaryFolder folder;
  const auto html = example_page(folder);
  for (const char* word :
       {"A &lt;title&gt;", "made &amp; tested", "12.00 ± 2.83 %", "ZCA, analytic", "at step 3",
        "The gradient is &lt;not finite&gt;.", "Gradient norm", "Smallest gap", "Eigenvalues",
        "What all runs share", "prefers-color-scheme: dark", "width=device-width"})
    EXPECT_NE(html.find(word), std::string::npos) << word;
  EXPECT_EQ(html.find("nan"), std::string::npos);
}

TEST(Page, EveryColourItUsesIsDefinedInBothThemes) {
  const TemporaryFolder folder;
  const auto html = example_page(folder);
  const auto dark = html.find("prefers-color-scheme: dark");
  const std::regex use("var\\((--[a-z0-9-]+)\\)");
  for (std::sregex_iterator i(html.begin(), html.end(), use), end; i != end; ++i) {
    const std::string definition = (*i)[1].str() + ":";
    EXPECT_LT(html.find(definition), dark) << definition;
    EXPECT_NE(html.find(definition, dark), std::string::npos) << definition;
  }
}

TEST(Page, ARunWithNothingButItsStartHasAPage) {
  const TemporaryFolder folder;
  testing::write(folder / "a" / "metrics.jsonl", "{\"kind\":\"start\",\"step\":0}\n");
  const auto html = page(grouped({read_run(folder / "a")}), {});
  EXPECT_EQ(first_unbalanced(html), "");
  EXPECT_EQ(html.find("nan"), std::string::npos);
}

}  // namespace
}  // namespace keel::lab::report
