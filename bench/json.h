#pragma once

// The little JSON that records are made of.

#include <fmt/format.h>

#include <map>
#include <string>
#include <vector>

namespace keel::bench {

inline std::string json_of(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) >= 0x20) out += c;
  }
  return out + "\"";
}

inline std::string json_of(double number) { return fmt::format("{:.3f}", number); }
template <typename Value>
std::string json_of(const std::map<std::string, Value>& fields) {
  std::string out;
  for (const auto& [key, value] : fields)
    out += fmt::format("{}{}: {}", out.empty() ? "" : ", ", json_of(key), json_of(value));
  return "{" + out + "}";
}

/// The inside of a list or an object, each item on a line of its own.
inline std::string lines(const std::vector<std::string>& items) {
  std::string out;
  for (const std::string& item : items) out += (out.empty() ? "\n    " : ",\n    ") + item;
  return out + "\n  ";
}

}  // namespace keel::bench
