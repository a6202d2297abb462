#pragma once

// Fuzz targets for the lab's readers, one file per reader. For any bytes, a reader must return a result or throw a
// keel::Error that names the file. Everything else is a finding: another exception, a crash, a hang, excessive
// memory, or a report of AddressSanitizer or UndefinedBehaviorSanitizer.

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
  /// Makes good files of binary formats. Good text files are in corpus/NAME.
  std::function<std::vector<std::string>()> seeds;
};

std::vector<Reader>& readers();

struct Registration {
  explicit Registration(Reader reader) { readers().push_back(std::move(reader)); }
};

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
