#include "lab/storage/json.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "support/errors.h"
#include "support/files.h"

namespace keel::lab {
namespace {

using keel::testing::refuses;
using keel::testing::repeated;
using nlohmann::json;

TEST(Json, ReadsWhatItsLibraryReads) {
  const std::string text =
      R"({"b": [1, -2, 0.1, 1e300, true, null, "x\u00e9"], "a": {"c": {}, "b": 18446744073709551615}})";
  EXPECT_EQ(parse_json(text, "FILE"), json::parse(text));
  EXPECT_EQ(parse_ordered_json(text, "FILE"), nlohmann::ordered_json::parse(text));
  EXPECT_EQ(parse_ordered_json(text, "FILE").begin().key(), "b");
}

TEST(Json, SaysWhatIsWrongAndWhere) {
  for (const std::string text : {"", "{", "[1,]", "{\"a\" 1}", "1 2", "nul", "{\"a\": 1e999}",
                                 "\"\xff\"", "{\"a\": 1}}", "// a\n1"})
    EXPECT_TRUE(refuses({"FILE is no JSON: "}, [&] { parse_json(text, "FILE"); })) << text;
  EXPECT_TRUE(refuses({"line 2, column 3"}, [] { parse_json("[1,\n2 3]", "FILE"); }));
  for (const std::string text : {R"({"a": 1, "a": 2})", R"([{"x": {"b": 1, "a": {}, "b": 1}}])"})
    EXPECT_TRUE(refuses({"twice in one object"}, [&] { parse_json(text, "FILE"); })) << text;
  EXPECT_NO_THROW(parse_json(R"([{"a": {"a": 1}}, {"a": 2}])", "FILE"));
}

// Values are copied, compared, written and destroyed recursively.
TEST(Json, NoDepthOverflowsTheStack) {
  for (const std::string open : {"[", "{\"a\":", "[{\"a\":"}) {
    EXPECT_TRUE(
        refuses({"nested deeper than 64"}, [&] { parse_json(repeated(open, 200'000), "FILE"); }));
    EXPECT_TRUE(refuses({"nested deeper than 64"},
                        [&] { parse_ordered_json(repeated(open, 65), "FILE"); }));
  }
  EXPECT_NO_THROW(parse_json(repeated("[", 64) + repeated("]", 64), "FILE"));
}

// In quadratic time this would take minutes.
TEST(Json, ManyEntriesTakeNoLongerEach) {
  std::string text = "{\"x\": {}";
  for (int i = 0; i < 200'000; ++i) text += ", \"t" + std::to_string(i) + "\": {\"a\": [1, 2]}";
  text += "}";
  EXPECT_EQ(parse_json(text, "FILE").size(), 200'001u);
  EXPECT_TRUE(refuses({"more than 10000 names"}, [&] { parse_ordered_json(text, "FILE"); }));
}

TEST(Json, WholeNumbersAreWholeAndInRange) {
  const json object = json::parse(
      R"({"a": 3, "b": -1, "c": 1.0, "d": 18446744073709551615, "e": "1", "f": true, "g": 1e300})");
  EXPECT_EQ(whole_number(object, "a"), 3);
  EXPECT_EQ(whole_number(object, "b", -1), -1);
  EXPECT_TRUE(refuses({"expected b to be a whole number >= 0, got -1"},
                      [&] { whole_number(object, "b"); }));
  for (const char* name : {"c", "d", "e", "f", "g"})
    EXPECT_TRUE(refuses({"to be a whole number"}, [&] { whole_number(object, name); })) << name;
  EXPECT_TRUE(refuses({"'h', got none"}, [&] { whole_number(object, "h"); }));
  EXPECT_TRUE(refuses({"'h', got none"}, [&] { whole_number(json(3), "h"); }));
}

TEST(Json, KnowsUtf8) {
  for (const char* text : {"", "plain", "\xc3\xa9", "\xf0\x9f\x98\x80", "tab\t"})
    EXPECT_TRUE(is_utf8(text)) << text;
  for (const char* text : {"\xff", "\xc3", "a\x80", "\xed\xa0\x80", "\xc0\xaf", "\xf4\x90\x80\x80"})
    EXPECT_FALSE(is_utf8(text)) << text;
}

}  // namespace
}  // namespace keel::lab
