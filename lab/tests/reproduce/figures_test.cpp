#include "lab/reproduce/figures.h"

#include <gtest/gtest.h>

#include <cmath>
#include <regex>

#include "experiments.h"
#include "lab/reproduce/page.h"
#include "lab/tests/report/run_files.h"
#include "support/errors.h"

namespace keel::lab::reproduce {
namespace {

using report::testing::read;

TEST(Figures, StudentsTIsThatOfTheTables) {
  // Two-sided 5 % points, as printed in tables.
  for (const auto& [freedom, t] : {std::pair(1.0, 12.706),
                                   {2.0, 4.303},
                                   {5.0, 2.571},
                                   {10.0, 2.228},
                                   {30.0, 2.042},
                                   {120.0, 1.980}})
    EXPECT_NEAR(student_t95(freedom), t, 6e-4) << freedom;
  EXPECT_NEAR(student_p(1, 1), 0.5, 1e-14);  // Cauchy: 1 - 2 atan(t) / pi
  EXPECT_NEAR(student_p(-7, 1), 1 - 2 * std::atan(7.0) / std::acos(-1.0), 1e-14);
  EXPECT_NEAR(student_p(3, 2), 1 - 3 / std::sqrt(11.0), 1e-14);  // 1 - t / sqrt(2 + t^2)
  EXPECT_EQ(student_p(0, 4), 1);
  EXPECT_NEAR(student_p(1.96, 1e7), 0.0499958, 1e-6);  // the normal distribution
}

TEST(Figures, DifferencesHaveTheirIntervals) {
  // Means 2 and 5, variances of the means 1/3 and 4/3: freedom (5/3)^2 / (1/18 + 16/18) = 50/17.
  const Difference found = welch({1, 2, 3}, {3, 5, 7});
  const double side = student_t95(50.0 / 17) * std::sqrt(5.0 / 3);
  EXPECT_NEAR(found.mean, 3, 1e-14);
  EXPECT_NEAR(found.low, 3 - side, 1e-12);
  EXPECT_NEAR(found.high, 3 + side, 1e-12);
  EXPECT_NEAR(found.p, student_p(3 / std::sqrt(5.0 / 3), 50.0 / 17), 1e-14);
  EXPECT_TRUE(std::isnan(welch({1}, {3, 5}).low));
  EXPECT_EQ(welch({1}, {3, 5}).p, 1);
  const Difference pairs = paired({1, 2, 3});  // 4.303 / sqrt(3) around 2
  EXPECT_NEAR(pairs.high, 2 + 4.302652729749463 / std::sqrt(3.0), 1e-9);
  EXPECT_EQ(holm({0.01, 0.04, 0.03, 0.5}), (std::vector<double>{0.04, 0.09, 0.09, 0.5}));
}

Trial measured_trial(const std::string& cell, std::uint64_t seed, double error) {
  Trial one{.cell = cell, .seed = seed};
  one.result.status = "finished";
  one.result.test_error = error;
  one.loss = {2, 1, 1.5}, one.gradient = {3, 1234.6, NAN};
  return one;
}

std::vector<Experiment> experiments() {
  Experiment one;
  one.recipe.name = "table";
  for (const char* name : {"a-d4", "a-d8", "b-d4", "b-d8", "bn"}) {
    Cell cell;
    cell.name = name;
    cell.x = cell.name.back() - '0';
    one.recipe.cells.push_back(cell);
  }
  PaperFigures& paper = one.recipe.cells[0].paper;
  paper.mean = 4.59, paper.deviation = 0.09, paper.success = 46.7;
  one.recipe.cells[4].paper.mean = 4.81;
  one.results.options = {{"epochs", 6}};
  one.results.trials = {measured_trial("a-d4", 1, 0.10), measured_trial("a-d4", 2, 0.12),
                        measured_trial("a-d8", 1, 0.11), measured_trial("b-d4", 1, 0.13),
                        measured_trial("b-d4", 2, 0.14), measured_trial("b-d8", 1, 0.12),
                        measured_trial("b-d8", 2, 0.19)};
  one.results.trials.back().result.status = "failed";
  one.results.trials.back().result.failure.emplace().step = 33;
  one.results.measured = {{"rows", Json::array({{{"n", 4}, {"rule", "the one"}, {"value", 0.5}},
                                                {{"n", 8}, {"rule", "the one"}, {"value", 1e-7}},
                                                {{"n", 4}, {"rule", "other"}, {"value", 7}}})}};
  return {one};
}

TEST(Figures, AreFilledIn) {
  const auto filled = [](const std::string& expression) {
    return with_figures("<{{" + expression + "}}>", experiments());
  };
  EXPECT_EQ(filled("error table:a-d4"), "<11.00 ± 1.41>");
  EXPECT_EQ(filled("error table:a-d8"), "<11.00>");
  EXPECT_EQ(filled("error table:a-d4+table:b-d8"), "<11.33 ± 1.15>");
  EXPECT_EQ(filled("error-of table:b-d4 2"), "<14.00>");
  EXPECT_EQ(filled("paper table:a-d4"), "<4.59 ± 0.09>");
  EXPECT_EQ(filled("paper-success table:a-d4"), "<46.7 %>");
  EXPECT_EQ(filled("paper-ahead table:a-d4 table:bn"), "<0.22>");
  EXPECT_EQ(filled("success table:b-*"), "<3 of 4>");
  EXPECT_EQ(filled("failed table:b-*,a-d8"), "<1 of 5>");
  EXPECT_EQ(filled("steps table:b-*"), "<33>");
  EXPECT_EQ(filled("runs table:b-*"), "<6 x 4>");
  EXPECT_EQ(filled("gradient table:a-d4"), "<1,235>");
  EXPECT_EQ(filled("rise table:a-d4"), "<0.50>");
  EXPECT_EQ(filled("trials 6"), "<7>");
  EXPECT_EQ(filled("trials 350"), "<0>");
  EXPECT_EQ(filled("paper-cells 6"), "<1>");  // the other has no trial
  EXPECT_EQ(filled("row table rows value {:.1f} n=4 rule=the_one"), "<0.5>");
  EXPECT_EQ(filled("row table rows value {:.1g} rule=the_one"), "<1e-07 to 0.5>");
  // Pairs of the same d and seed: 3, 2 and 1 points; the failed trial has none.
  EXPECT_EQ(filled("paired table:a-* table:b-*"), "<2.00 (-0.48 to 4.48)>");
  EXPECT_EQ(filled("paired table:a-d4,a-d8 table:b-d4,b-d8"), "<2.00 (-0.48 to 4.48)>");
  EXPECT_EQ(filled("ahead table:a-d8 table:b-d4"), "<2.50 (no interval)>");
  // By seed: 10 and 11 (d = 4 and 8), and 12 alone.
  EXPECT_EQ(filled("noise table:a-*"), "<0.71>");
  EXPECT_EQ(with_figures("no figure", {}), "no figure");
}

TEST(Figures, VerdictsAreCorrectedForEachOther) {
  std::vector<Experiment> all = experiments();
  all[0].results.trials = {measured_trial("a-d4", 1, 0.100), measured_trial("a-d4", 2, 0.102),
                           measured_trial("a-d4", 3, 0.104), measured_trial("b-d4", 1, 0.106),
                           measured_trial("b-d4", 2, 0.108), measured_trial("b-d4", 3, 0.110)};
  // p = 0.021 alone, which two comparisons leave below 0.05 and three do not. The same one twice counts once.
  const std::string one = "{{verdict ahead table:a-d4 table:b-d4}}";
  EXPECT_EQ(with_figures(one + one, all), "holdsholds");
  EXPECT_EQ(with_figures("{{verdict ahead table:b-d4 table:a-d4}}", all), "the reverse");
  const std::string other =
      " {{ahead table:a-d4,b-d4 table:b-d4}} {{ahead table:b-d4 table:a-d4,b-d4}}";
  EXPECT_EQ(with_figures(one + other, all).substr(0, 15), "points that way");
  EXPECT_EQ(with_figures("{{verdict ahead table:a-d4,b-d4 table:b-d4}}", all), "inconclusive");
}

TEST(Figures, WhatCannotBeReadIsNamed) {
  const auto check = [](const std::string& expression, const std::string& part) {
    EXPECT_TRUE(keel::testing::refuses({"{{" + expression + "}}", part}, [&] {
      with_figures("{{" + expression + "}}", experiments());
    })) << expression;
  };
  check("average table:a-d4", "no such figure");
  check("error nothing:a-d4", "no experiment nothing");
  check("error table:c-*", "table:c-* has no trials");
  check("error a-d4", "expected EXPERIMENT:CELL, got a-d4");
  check("steps table:a-d4", "no trial failed");
  check("row table rows value {:.1f} n=5", "no such row");
  check("paper table:a-d8", "the paper has no such figure");
  EXPECT_TRUE(keel::testing::refuses({"}}"}, [] { with_figures("{{error", experiments()); }));
}

/// What the source of the page says itself.
std::string by_hand(const std::filesystem::path& source) {
  return std::regex_replace(read(source), std::regex(R"(\{\{.*?\}\})"), "");
}

// Every figure of the page comes from a record: its source has no numbers with a decimal point, no percentages and no counts of
// trials, but for what the paper states.
TEST(Figures, NoneOnThePageIsWrittenByHand) {
  std::string text = by_hand(kExperiments / "what_we_learned.md.in");
  for (const char* stated :
       {"99.9 %", "99.5 %", "85 %", "90 %", "95 %", "99 %", "100 %", "0.84 to 0.86"})
    for (std::size_t at; (at = text.find(stated)) != std::string::npos;)
      text.erase(at, std::string(stated).size());
  const std::regex figure(R"([0-9]+\.[0-9]+|[0-9]+ %|[0-9]+ of [0-9]+|[0-9]+ points)");
  for (std::sregex_iterator at(text.begin(), text.end(), figure), end; at != end; ++at)
    ADD_FAILURE() << "written by hand: " << at->str();
}

}  // namespace
}  // namespace keel::lab::reproduce
