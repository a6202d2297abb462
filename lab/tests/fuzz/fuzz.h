#pragma once

// What main.cpp, which libFuzzer calls, and the readers under attack (readers.cpp) have in common.

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace keel::fuzz {

struct Reader {
  std::string name;
  std::function<void(const std::string& bytes)> attack;
  std::function<std::vector<std::string>()> seeds;  ///< good files; empty: they are in corpus/NAME
};

const std::vector<Reader>& readers();

/// A temporary folder of this process.
const std::filesystem::path& folder();

/// Part of the path of every file under attack, and so of every message about it.
inline const std::string kHostile = "hostile";

[[noreturn]] inline void found(const std::string& what) {
  std::fprintf(stderr, "finding: %s\n", what.c_str());
  std::abort();
}

inline void expect(bool holds, const std::string& what) {
  if (!holds) found("expected " + what);
}

/// Runs a call that must not fail: writing what has been read.
template <typename Call>
auto must(const std::string& what, Call&& call) {
  try {
    return call();
  } catch (const std::exception& error) {
    found(what + ": " + error.what());
  }
}

}  // namespace keel::fuzz
