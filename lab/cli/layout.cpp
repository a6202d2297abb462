#include "lab/cli/layout.h"

#include <fmt/format.h>

#include <sstream>

namespace keel::cli {
namespace {

constexpr std::size_t kIndent = 28, kWidth = 100;

/// CLI11 writes "TYPE:VALIDATOR", and "{a,b,c}" for a choice.
struct Words {
  std::string type, valid;
};

Words words(const CLI::Option* option) {
  const std::string text = option->get_type_name();
  const auto colon = text.find(':');
  Words result{text.substr(0, colon), colon == std::string::npos ? "" : text.substr(colon + 1)};
  if (result.valid == "DIR" || result.valid == "FILE") result.valid.clear();
  if (result.valid.size() > 1 && result.valid.front() == '{') {
    std::string spaced;
    for (const char c : result.valid.substr(1, result.valid.size() - 2))
      spaced += c == ',' ? std::string(", ") : std::string(1, c);
    result.valid = spaced;
  }
  static const std::string plain[][2] = {
      {"TEXT", "NAME"}, {"INT", "N"}, {"UINT", "N"}, {"FLOAT", "X"}};
  for (const auto& [theirs, ours] : plain)
    if (result.type == theirs) result.type = ours;
  return result;
}

std::string wrapped(const std::string& text) {
  std::string out, line;
  std::istringstream stream(text);
  for (std::string word; stream >> word;) {
    if (!line.empty() && kIndent + line.size() + 1 + word.size() > kWidth) {
      out += line + '\n' + std::string(kIndent, ' ');
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  return out + line;
}

}  // namespace

std::string Layout::make_option(const CLI::Option* option, bool is_positional) const {
  const auto [type, valid] = words(option);
  std::string name = option->get_name(is_positional, true);
  for (auto at = name.find("{false}"); at != std::string::npos; at = name.find("{false}"))
    name.erase(at, 7);  // removes the {false} that CLI11 adds to a flag's --no- form
  for (auto at = name.find(','); at != std::string::npos; at = name.find(',', at + 1))
    name.insert(at + 1, " ");
  const bool flag = option->get_items_expected_max() == 0;
  if (!flag && !is_positional) name += " " + type;
  std::string text = option->get_description();
  if (!flag && !valid.empty()) text += fmt::format(" ({})", valid);
  if (!option->get_default_str().empty()) text += fmt::format(" [{}]", option->get_default_str());
  std::string left = "  " + name;
  if (left.size() + 2 > kIndent)
    left += '\n' + std::string(kIndent, ' ');
  else
    left.resize(kIndent, ' ');
  return left + wrapped(text) + '\n';
}

}  // namespace keel::cli
