#include "lab/report/wording.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <map>

namespace keel::lab::report {

std::string escaped(const std::string& text) {
  static const std::map<char, std::string> entities = {
      {'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}, {'\'', "&#39;"}};
  std::string out;
  for (const char c : text) {
    const auto found = entities.find(c);
    out += found == entities.end() ? std::string(1, c) : found->second;
  }
  return out;
}

std::string number(double value) {
  if (!std::isfinite(value)) return "-";
  const double size = std::abs(value);
  if (size >= 1e4 && size < 1e7) return fmt::format("{:.0f}", value);
  return fmt::format("{:.4g}", value);
}

std::string tick(double value) {
  if (value == 0) return "0";
  const double size = std::abs(value);
  if (size < 1e-3 || size >= 1e7) {  // 1e-4 instead of 1e-04, to save a column
    const std::string text = fmt::format("{:.2e}", value);
    const auto e = text.find('e');
    return fmt::format("{:g}e{}", std::stod(text.substr(0, e)), std::stoi(text.substr(e + 1)));
  }
  if (size >= 1e4) return fmt::format("{:g}k", value / 1e3);
  return fmt::format("{:g}", value);
}

std::string percent(double fraction, int digits) {
  return std::isfinite(fraction) ? fmt::format("{:.{}f} %", 100 * fraction, digits) : "-";
}

std::string duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "-";
  if (seconds < 60) return fmt::format("{:.{}f} s", seconds, seconds < 10 ? 1 : 0);
  const auto whole = std::int64_t(std::llround(seconds));
  const auto hours = whole / 3600, minutes = whole / 60 % 60, rest = whole % 60;
  return hours > 0 ? fmt::format("{}:{:02}:{:02}", hours, minutes, rest)
                   : fmt::format("{}:{:02}", minutes, rest);
}

std::string cut(const std::string& text, std::size_t limit) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xC0) == 0x80) continue;
    if (count++ == limit) return text.substr(0, i);
  }
  return text;
}

std::size_t columns(const std::string& text) {
  std::size_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

}  // namespace keel::lab::report
