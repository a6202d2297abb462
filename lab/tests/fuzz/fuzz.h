#pragma once

// Attackers of the lab's readers, one file a reader. Whatever the bytes are, a reader gives a result or throws a
// keel::Error that names the file. All else is a finding: another exception, a crash, a hang, memory out of
// proportion, a word from AddressSanitizer or UndefinedBehaviorSanitizer.

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
  /// Good files, made here: those of binary formats. Text lies in corpus/NAME.
  std::function<std::vector<std::string>()> seeds;
};

std::vector<Reader>& readers();

struct Registration {
  explicit Registration(Reader reader) { readers().push_back(std::move(reader)); }
};

/// A folder of this process's own.
const std::filesystem::path& folder();

/// What every file under attack has in its path, and so every message about it.
inline const std::string kHostile = "hostile";

[[noreturn]] inline void found(const std::string& what) {
  std::fprintf(stderr, "finding: %s\n", what.c_str());
  std::abort();
}

inline void expect(bool holds, const std::string& what) {
  if (!holds) found("expected " + what);
}

/// What may not be refused: to write what has been read.
template <typename Call>
auto must(const std::string& what, Call&& call) {
  try {
    return call();
  } catch (const std::exception& error) {
    found(what + ": " + error.what());
  }
}

}  // namespace keel::fuzz
