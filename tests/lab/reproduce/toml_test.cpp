#include "lab/reproduce/toml.h"

#include <gtest/gtest.h>

#include "keel/error.h"

namespace keel::lab::reproduce {
namespace {

std::string message_of(const std::string& text) {
  try {
    parse_toml(text, "r.toml");
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

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
  // The kinds of numbers that keel train's options ask for.
  EXPECT_TRUE(got.at("count").is_number_unsigned());
  EXPECT_TRUE(got.at("less").is_number_integer());
  EXPECT_TRUE(got.at("zero").is_number_float());
}

TEST(Toml, SaysWhereItIsWrong) {
  EXPECT_EQ(message_of("a = 1\nb 2\n"), "r.toml, line 2: expected '=' after 'b', got '2'");
  EXPECT_EQ(message_of("a = \"x\nb = 1"), "r.toml, line 1: expected the end of the text, got '\n'");
  EXPECT_EQ(message_of("a = 1x"), "r.toml, line 1: expected a value, got '1'");
  EXPECT_EQ(message_of("a = "), "r.toml, line 1: expected a value, got the file's end");
  EXPECT_EQ(message_of("a = [1 2]"), "r.toml, line 1: expected ',' or ']', got '2'");
  EXPECT_EQ(message_of("a = 1 2"), "r.toml, line 1: expected the end of the line, got '2'");
  EXPECT_EQ(message_of("a = \"\"\"x"),
            "r.toml, line 1: expected the end of the text, got the file's end");
  EXPECT_NE(message_of("a = 1\na = 2").find("expected 'a' once"), std::string::npos);
  EXPECT_NE(message_of("[t]\n[t]").find("expected each table once"), std::string::npos);
  EXPECT_NE(message_of("a = 1\n[a.b]").find("expected the name of a table"), std::string::npos);
}

}  // namespace
}  // namespace keel::lab::reproduce
