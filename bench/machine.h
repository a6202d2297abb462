#pragma once

// What a record says of the machine, the tree and the time.

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <string>

namespace keel::machine {

inline std::string processor() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  return "unknown";
}

/// What the environment's KEEL_TREE says, or git.
inline std::string source_tree() {
  if (const char* told = std::getenv("KEEL_TREE")) return told;
  std::string out;
  if (FILE* pipe = popen("git describe --always --dirty 2>/dev/null", "r")) {
    char buffer[256];
    while (fgets(buffer, sizeof(buffer), pipe)) out += buffer;
    pclose(pipe);
  }
  while (!out.empty() && out.back() == '\n') out.pop_back();
  return out.empty() ? "unknown" : out;
}

/// Now, as strftime writes it.
inline std::string utc(const char* format = "%Y-%m-%dT%H:%M:%SZ") {
  char text[32];
  const std::time_t now = std::time(nullptr);
  std::strftime(text, sizeof(text), format, std::gmtime(&now));
  return text;
}

}  // namespace keel::machine
