#include "lab/train/options.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "lab/tests/train/support.h"

namespace keel::lab {
namespace {

using nlohmann::json;
using test::error_of;

TEST(TrainOptionsTest, NamesWhatIsWrongInJsonAndTurnsNoNumberIntoAnother) {
  for (const auto& [given, said] : std::vector<std::pair<json, std::string>>{
           {{{"batch", "many"}}, "expected batch to be a whole number, got \"many\""},
           {{{"batch", 1.5}}, "expected batch to be a whole number, got 1.5"},
           {{{"seed", -1}}, "expected seed to be a whole number, got -1"},
           {{{"batches", 1}}, "unknown option 'batches'"},
           {{{"group_size", 18446744073709551615u}},
            "expected group_size to be a whole number, got 18446744073709551615"},
           {{{"batch", 0}}, "expected batch in [1, 1000000000], got 0"},
           {json::array(), "expected a JSON object, got []"}})
    EXPECT_EQ(error_of([&, &given = given] { train_options(given); }), said);
  EXPECT_EQ(train_options({{"seed", "18446744073709551615"}}).seed, 0xffffffffffffffffu);
  for (const char* text : {"", "-1", "1x", "18446744073709551616", " 1"})
    EXPECT_NE(error_of([&] { train_options({{"seed", text}}); }), "no error") << text;
}

// A run's options are written to config.toml and to checkpoints, and must read back unchanged.
TEST(TrainOptionsTest, PathsAreUtf8) {
  for (const std::string& path : {std::string("caf\xe9"), std::string("a\0b", 3)}) {
    TrainOptions options = test::small_options();
    options.data.path = path;
    EXPECT_NE(error_of([&] { validate(options); }).find("expected path in UTF-8"),
              std::string::npos);
    options.data.path = "";
    options.run = path;
    EXPECT_NE(error_of([&] { validate(options); }).find("expected run in UTF-8"),
              std::string::npos);
  }
}

TEST(TrainOptionsTest, ValidateNamesTheOptionAndTheRange) {
  const auto with = [](auto change) {
    TrainOptions options = test::small_options();
    change(options);
    return error_of([&] { validate(options); });
  };
  EXPECT_EQ(with([](auto& o) { o.batch = 0; }), "expected batch in [1, 1000000000], got 0");
  EXPECT_EQ(with([](auto& o) { o.momentum = 1.5; }), "expected momentum in [0, 1], got 1.5");
  EXPECT_EQ(with([](auto& o) { o.learning_rate = std::nan(""); }),
            "expected learning_rate in [0, 1000000], got nan");
  EXPECT_EQ(with([](auto& o) { o.schedule = "cosine"; }),
            "expected schedule to be one of one_cycle, paper, constant, got 'cosine'");
  EXPECT_EQ(with([](auto& o) { o.resume = true; }), "expected a run folder to resume, got none");
  EXPECT_NE(with([](auto& o) { o.model.norm.kind = "layer"; }), "no error");
  EXPECT_NE(with([](auto& o) { o.model.norm.eps = -1; }), "no error");
  EXPECT_NE(with([](auto& o) { o.log_every = 0; }), "no error");
}

}  // namespace
}  // namespace keel::lab
