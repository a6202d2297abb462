#include "lab/report/wording.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <map>

namespace keel::lab::report {
namespace {

std::string replaced(const std::string& text, const std::map<char, std::string>& entities) {
  std::string out;
  for (const char c : text) {
    const auto found = entities.find(c);
    out += found == entities.end() ? std::string(1, c) : found->second;
  }
  return out;
}

}  // namespace

std::string escaped(const std::string& text) {
  static const std::map<char, std::string> entities = {
      {'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}, {'\'', "&#39;"}};
  return replaced(text, entities);
}

std::string in_markdown(const std::string& text) {
  static const std::map<char, std::string> entities = {
      {'<', "&lt;"}, {'>', "&gt;"}, {'&', "&amp;"}, {'|', "&#124;"}, {'\n', " "}};
  return replaced(text, entities);
}

std::string harmless(const std::string& text) {
  std::string out;
  for (std::size_t i = 0, length = 1; i < text.size(); i += length) {
    const auto byte = [&](std::size_t k) {
      return i + k < text.size() ? static_cast<unsigned char>(text[i + k]) : 0u;
    };
    const unsigned first = byte(0);
    length = first < 0x80 ? 1 : first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : first >= 0xC2 ? 2 : 0;
    unsigned code = length > 1 ? first & (0xFFu >> (length + 1)) : first;
    bool valid = length > 0 && first < 0xF5;
    for (std::size_t k = 1; k < length; ++k) {
      valid = valid && (byte(k) & 0xC0) == 0x80;
      code = code << 6 | (byte(k) & 0x3F);
    }
    // No shorter form has been made longer, and no half of a pair stands for a letter.
    valid = valid && !(length == 3 && (code < 0x800 || (code >= 0xD800 && code < 0xE000))) &&
            !(length == 4 && (code < 0x10000 || code > 0x10FFFF));
    if (!valid) {
      out += fmt::format("\\x{:02x}", first);
      length = 1;
    } else if ((code < 0x20 && code != '\n' && code != '\t') || code == 0x7F) {
      out += fmt::format("\\x{:02x}", code);
    } else if ((code >= 0x80 && code < 0xA0) || code == 0x200E || code == 0x200F ||
               (code >= 0x2028 && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069)) {
      out += fmt::format("\\u{:04x}", code);
    } else {
      out += text.substr(i, length);
    }
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

std::string mean_text(double mean, double deviation) {
  if (!std::isfinite(mean)) return "-";
  return std::isfinite(deviation) ? fmt::format("{:.2f} ± {:.2f}", mean, deviation)
                                  : fmt::format("{:.2f}", mean);
}

std::string duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "-";
  if (seconds < 60) return fmt::format("{:.{}f} s", seconds, seconds < 10 ? 1 : 0);
  if (seconds > 1e10) return fmt::format("{:.3g} s", seconds);  // nobody measured that
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

std::string shortened(const std::string& text, std::size_t limit) {
  return columns(text) <= limit ? text : cut(text, limit - 1) + "…";
}

std::size_t columns(const std::string& text) {
  std::size_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

}  // namespace keel::lab::report
