#include "lab/storage/toml.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/errors.h"
#include "support/files.h"

namespace keel::lab {
namespace {

using Json = nlohmann::ordered_json;
using keel::testing::refuses;
using keel::testing::repeated;

TEST(Toml, ReadsWhatRecipesUse) {
  const Json got = parse_toml(
      "# a comment\n"
      "name = \"a \\\"b\\\" # no comment\"  # one\n"
      "path = 'C:\\n'\n"
      "text = \"\"\"\nfirst\nsecond\n\"\"\"\n"
      "count = 12\nless = -3\nreal = 5e-4\nzero = 0.0\nyes = true\nno = false\n"
      "list = [1, 2.5,  # a comment in it\n  \"x\",\n]\n"
      "[cells.svd-d4]\ntrain = { norm = \"zca\", size = 4, deep = { on = true } }\n"
      "[cells.bn]\n\n[other]\na = 1",
      "r.toml");
  const Json expected = Json::parse(R"({
    "name": "a \"b\" # no comment", "path": "C:\\n", "text": "first\nsecond\n",
    "count": 12, "less": -3, "real": 0.0005, "zero": 0.0, "yes": true, "no": false,
    "list": [1, 2.5, "x"],
    "cells": {"svd-d4": {"train": {"norm": "zca", "size": 4, "deep": {"on": true}}}, "bn": {}},
    "other": {"a": 1}})");
  EXPECT_EQ(got, expected) << got.dump(1);
  EXPECT_EQ(got.dump(), expected.dump());  // the order too
  // The kinds of numbers that keel train's options require.
  EXPECT_TRUE(got.at("count").is_number_unsigned());
  EXPECT_TRUE(got.at("less").is_number_integer());
  EXPECT_TRUE(got.at("zero").is_number_float());
}

TEST(Toml, KnowsTheLineOfEachName) {
  TomlLines lines;
  parse_toml("a = 1\n\n[b.c]\nd = { e = 1,\tf = 2 }\n", "r.toml", &lines);
  const TomlLines expected = {{"a", 1},     {"b", 3},       {"b.c", 3},
                              {"b.c.d", 4}, {"b.c.d.e", 4}, {"b.c.d.f", 4}};
  EXPECT_EQ(lines, expected);
}

// Outside of strings and comments they cause undefined behaviour in toml++.
TEST(Toml, LettersBeyondAsciiAreInQuotes) {
  const std::string e = "\xc3\xa9";
  EXPECT_EQ(parse_toml("\xef\xbb\xbf'" + e + "' = \"" + e + "\\n" + e + "\" # " + e, "r.toml"),
            Json({{e, e + "\n" + e}}));
  const auto wrong = [](const std::string& text, const std::string& line) {
    return refuses({"r.toml, line " + line + ": ", "ASCII"}, [&] { parse_toml(text, "r.toml"); });
  };
  EXPECT_TRUE(wrong("a = 1\n" + e + " = 2\n", "2"));
  EXPECT_TRUE(wrong("a = 1" + e + "\n", "1"));
  EXPECT_TRUE(wrong("a = \"\"\"\nb\\\n " + e + "\"\"\"", "2"));
}

// toml++ takes quotes inside a word, and the letters in them, for part of the word.
TEST(Toml, QuotesStandWhereANameOrAValueBegins) {
  const std::string e = "\xc3\xa9";
  const auto wrong = [](const std::string& text, const std::string& part) {
    return refuses({"r.toml, line 2: ", part}, [&] { parse_toml("a = 1\n" + text, "r.toml"); });
  };
  for (const std::string& text :
       {"b = 0'" + e + "'", "b = 0 '" + e + "'", "b\"" + e + "\" = 1", "b = 'c' '" + e + "'"})
    EXPECT_TRUE(wrong(text, "expected quotes where a name or a value begins")) << text;
  EXPECT_TRUE(wrong("b = 'c\nd = '" + e + "'", "expected the quotes to end on their line"));
  using namespace std::string_literals;
  EXPECT_TRUE(wrong("b = 0\0\0'\0"s + e + "\n", "expected no control character"));
  EXPECT_TRUE(wrong("b = '\x7f'", "expected no control character"));
  EXPECT_EQ(parse_toml("b.'" + e + "'.\"c\" = [ # d\n 'x', {'" + e + "' = '''y''''}]", "r.toml"),
            Json::parse(R"({"b": {"\u00e9": {"c": ["x", {"\u00e9": "y'"}]}}})"));
}

// Errors have the file, the line number, and the text of the line with the name.
TEST(Toml, SaysWhereItIsWrong) {
  const auto wrong = [](const std::string& text, const std::string& line, const std::string& part) {
    return refuses({"r.toml, line " + line + ": ", part}, [&] { parse_toml(text, "r.toml"); });
  };
  EXPECT_TRUE(wrong("a = 1\nb 2\n", "2", "in 'b 2'"));
  EXPECT_TRUE(wrong("\nlearning_rate = 0,5\n", "2", "in 'learning_rate = 0,5'"));
  for (const std::string text : {"a = \"x", "a = 1x", "a = ", "a = [1 2]", "a = 1 2"})
    EXPECT_TRUE(wrong(text + "\nb = 1", "1", "in '" + text + "'")) << text;
  EXPECT_TRUE(wrong("a = 1\na = 2", "2", "'a'"));
  EXPECT_TRUE(wrong("a = 1\n\"a\" = 2", "2", "\"a\" = 2"));
  EXPECT_TRUE(wrong("[t]\n[t]", "2", "'t'"));
  EXPECT_TRUE(wrong("a = 1\n[a.b]", "2", "a"));
  EXPECT_TRUE(wrong("a = 1e999", "1", "1e999"));
  EXPECT_TRUE(wrong("a = 18446744073709551615", "1", "18446744073709551615"));
  EXPECT_TRUE(wrong("x = 1\na = inf", "2", "expected a finite number in 'a = inf'"));
  EXPECT_TRUE(wrong("a = [1.0, nan]", "1", "expected a finite number"));
  EXPECT_TRUE(wrong("a = 1979-05-27", "1", "expected no date or time in 'a = 1979-05-27'"));
  EXPECT_TRUE(wrong("a = \"\xff\"", "1", "utf-8"));
}

// toml++ assumes that a name follows the bracket.
TEST(Toml, ABracketWithoutANameIsAnError) {
  for (const std::string text : {"[}", "[[{1", "a = 1\n[=", "[#]", "[\\]", "[[[a]]]"})
    EXPECT_TRUE(refuses({"r.toml"}, [&] { parse_toml(text, "r.toml"); })) << text;
}

// Tables are destroyed recursively.
TEST(Toml, NoDepthOverflowsTheStack) {
  for (const std::string& text :
       {"a = " + repeated("[", 200'000), "a = " + repeated("{a=", 200'000),
        "a = " + repeated("[{a=", 200'000), repeated("a.", 200'000) + "a = 1",
        "[" + repeated("a.", 200'000) + "a]", "[[" + repeated("a.", 200'000) + "a]]",
        "x = {" + repeated("a.", 200'000) + "a = 1}", repeated("'a' . ", 200'000) + "a = 1",
        "s = \"\"\"x\"\"\"\"\n" + repeated("a.", 200'000) + "a = 1",
        "s = '''x'''''\n" + repeated("a.", 200'000) + "a = 1",
        "s = \"\"\"\"\"\"\n" + repeated("a.", 200'000) + "a = 1",
        "s = \"\\\\\"\n" + repeated("a.", 200'000) + "a = 1",
        "s = '\\'\n" + repeated("a.", 200'000) + "a = 1"})
    EXPECT_TRUE(refuses({"r.toml, line "}, [&] { parse_toml(text, "r.toml"); }))
        << text.substr(0, 30);
  // Dots that do not separate names.
  const std::string dots(100, '.');
  EXPECT_NO_THROW(
      parse_toml("a = \"" + dots + "\"\nb = '" + dots + "' # " + dots + "\nc = \"\"\"\n\"" + dots +
                     "\"\"\"\"\nd = '''\n" + dots +
                     "'''\ne = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1]\n",
                 "r.toml"));
}

TEST(Toml, TextComesBackWhateverIsInIt) {
  std::string every;
  for (int c = 1; c < 128; ++c) every += char(c);
  for (const std::string& text :
       {std::string(), std::string("plain"), every, std::string("a # b"), std::string("two\nlines"),
        std::string("\"\"\"'''\\"), std::string("\xc3\xa9 \xf0\x9f\x98\x80"), std::string("\0", 1),
        std::string("\xe2\x80\xa8\xef\xbb\xbf\xc2\x85")}) {
    const std::string written = toml_text(text);
    EXPECT_EQ(written.find('\n'), std::string::npos);
    EXPECT_EQ(parse_toml("a = " + written, "r.toml").at("a"), text) << written;
  }
  EXPECT_TRUE(refuses({"UTF-8"}, [] { toml_text("caf\xe9"); }));
}

}  // namespace
}  // namespace keel::lab
