#include "lab/reproduce/measure.h"

#include <gtest/gtest.h>

#include <cmath>

#include "experiments.h"
#include "lab/train/graph.h"

namespace keel::lab::reproduce {
namespace {

Recipe committed(const std::string& name) {
  return read_recipe(kExperiments / name / "recipe.toml");
}

Measured measure(const Measuring& what) { return kind_of(what.recipe).measure(what); }

/// A training that takes a second.
TrainOptions tiny() {
  TrainOptions options;
  options.model.name = "resnet_small";
  options.model.norm.kind = "zca";
  options.data.train_limit = 64;
  options.data.test_limit = 20;
  options.data.size = 8;
  options.batch = 16;
  options.epochs = 2;
  options.device = "cpu";
  options.threads = 1;
  return options;
}

const Json& row(const Json& rows, const Json& wanted) {
  for (const Json& one : rows) {
    bool fits = true;
    for (const auto& [name, value] : wanted.items()) fits &= one.at(name) == value;
    if (fits) return one;
  }
  throw Error("no row " + wanted.dump());
}

// The paper's own column, and the promise of its caption: with fewer than K terms, more than 5 % are missing.
TEST(Measure, Table1IsThePapers) {
  const Recipe recipe = committed("table1");
  const Json rows = measure({recipe, {}}).figures.at("rows");
  ASSERT_EQ(rows.size(), 14u);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].at("terms"), recipe.settings.at("paper").at(i));
    const double ratio = rows[i].at("ratio").get<double>(), k = rows[i].at("terms").get<double>();
    EXPECT_LE(rows[i].at("error").get<double>(), 0.05);
    EXPECT_GT(rows[i].at("error_before").get<double>(), 0.05);
    EXPECT_NEAR(rows[i].at("error").get<double>(), std::pow(ratio, k), 1e-4);
  }
}

TEST(Measure, Figure1sContoursLieOnTheSurface) {
  const Json figures = measure({committed("figure1"), {}}).figures;
  for (const Json& contour : figures.at("contours")) {
    ASSERT_FALSE(contour.at("k").empty());
    for (std::size_t i = 0; i < contour.at("k").size(); ++i)
      EXPECT_NEAR(std::pow(contour.at("ratio")[i].get<double>(), contour.at("k")[i].get<double>()),
                  contour.at("level").get<double>(), 1e-3);
  }
}

TEST(Measure, GradientErrorFallsWithTheTerms) {
  Recipe recipe = committed("gradient-error");
  recipe.settings["sizes"] = {4, 8, 64};  // 64: more than there are channels
  const Measured got = measure({recipe, tiny()});
  const Json& errors = got.figures.at("errors");
  for (const int d : {4, 8}) {
    double before = INFINITY;
    for (const int k : {1, 19, 200}) {
      const Json& one =
          row(errors, {{"d", d}, {"rule", "taylor"}, {"terms", k}, {"how", "float64"}});
      EXPECT_LT(one.at("error").get<double>(), before);
      EXPECT_EQ(one.at("matrices"), 3 * 8 / d);  // after the first step, and after two epochs
      before = one.at("error").get<double>();
    }
    // Without repeated eigenvalues, the textbook rule is exact up to rounding.
    EXPECT_LT(
        row(errors, {{"d", d}, {"rule", "analytic"}, {"how", "float64"}}).at("worst").get<double>(),
        1e-8);
    EXPECT_LT(
        row(errors, {{"d", d}, {"rule", "exact"}, {"how", "float32"}}).at("worst").get<double>(),
        1e-2);
  }
  EXPECT_EQ(got.data->train, 64);
  for (const Json& one : errors) EXPECT_NE(one.at("d"), 64);
  const Page drawn = page(recipe, Results{.experiment = "gradient-error",
                                          .schedule = "short",
                                          .data = got.data,
                                          .origins = {},
                                          .trials = {},
                                          .measured = got.figures});
  EXPECT_EQ(drawn.pictures.size(), 1u);
  EXPECT_NE(drawn.markdown.find("`power_iteration`, K = 19"), std::string::npos);
}

// If all eigenvalues are equal, the largest gradient of each rule can be computed by hand.
TEST(Measure, BoundsWhereTheyAreKnown) {
  Recipe recipe = committed("bounds");
  recipe.settings["sizes"] = {4};
  recipe.settings["n"] = 8;
  const Json rows = measure({recipe, tiny()}).figures.at("rows");
  const double k = 19, eps = 1e-4;
  const Json& ones = row(rows, {{"spectrum", "all equal to 1"}, {"rule", "power_iteration"}});
  EXPECT_NEAR(ones.at("vectors").get<double>(), std::hypot(k, k - 1) / std::sqrt(2), 1e-2);
  EXPECT_EQ(ones.at("bound"), 8 * k / eps);
  const Json& taylor = row(rows, {{"spectrum", "all equal to eps"}, {"rule", "taylor"}});
  EXPECT_NEAR(taylor.at("vectors").get<double>(), k / eps, 1e-3 * k / eps);
  const Json& exact = row(rows, {{"spectrum", "all equal to eps"}, {"rule", "exact"}});
  EXPECT_TRUE(exact.at("vectors").is_null());
  EXPECT_NEAR(exact.at("function").get<double>(), 0.5 * std::pow(eps, -1.5), 1e2);
  const Json& textbook =
      row(rows, {{"spectrum", "one pair equal, to the last bit"}, {"rule", "analytic"}});
  EXPECT_EQ(textbook.at("vectors"), "inf");
  for (const Json& one : rows) {  // never above the paper's bound
    if (one.at("bound").is_null()) continue;
    EXPECT_LE(one.at("vectors").get<double>(), one.at("bound").get<double>()) << one.dump();
  }
}

TEST(Measure, ConditionsTellTheRulesApart) {
  Recipe recipe = committed("conditions");
  recipe.settings["channels"] = 32;
  recipe.settings["dead"] = 4;
  recipe.settings["draws"] = 1;
  recipe.settings["rules"] = {"exact", "analytic"};
  const Json rows = measure({recipe, tiny()}).figures.at("rows");
  for (const Json& one : rows)
    if (one.at("rule") == "exact") {
      EXPECT_EQ(one.at("not_finite"), 0) << one.dump();
    }
  const Json& plain = row(rows, {{"condition", "as a convolution gives them"}, {"rule", "exact"}});
  EXPECT_LT(plain.at("gradient_error").get<double>(), 1e-3);
  const Json& constant = row(rows, {{"condition", "constant activations"}, {"rule", "analytic"}});
  EXPECT_EQ(constant.at("not_finite"), 1);
}

TEST(Measure, TimingHasBatchNormFirst) {
  Recipe recipe = committed("timing");
  recipe.settings["steps"] = 1;
  recipe.settings["rounds"] = 1;
  recipe.cells.resize(1);
  TrainOptions options = tiny();
  options.device = "auto";
  const Json rows = measure({recipe, options}).figures.at("rows");
  ASSERT_EQ(rows.size(), has_cuda() ? 4u : 2u);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto of = [&](const char* name) { return rows[i].at(name).get<double>(); };
    EXPECT_EQ(rows[i].at("name"), i % 2 ? "ZCA d=4, exact" : "BatchNorm");
    EXPECT_EQ(rows[i].at("graph"), i > 1);
    EXPECT_GT(of("least"), 0);
    EXPECT_LE(of("least"), of("milliseconds"));
    EXPECT_LE(of("milliseconds"), of("most"));
    // Milliseconds and ratio are rounded to four digits, each off by at most 5e-4 of itself; images to five.
    EXPECT_NEAR(of("images_per_second") * of("milliseconds"), 16e3, 5.6e-4 * 16e3);
    EXPECT_NEAR(of("ratio") * rows[i - i % 2].at("milliseconds").get<double>(), of("milliseconds"),
                1.51e-3 * of("milliseconds"));
  }
}

}  // namespace
}  // namespace keel::lab::reproduce
