#include "lab/storage/toml.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include "lab/require.h"
#include "lab/storage/json.h"

// toml++ states assumptions about its input as assertions, which a release build relies on. Some inputs violate them.
// Here each violation throws, in every build.
[[noreturn]] static void assertion_failed(const char* condition) {
  throw std::logic_error(condition);
}
#undef NDEBUG
#define TOML_ASSERT(condition) \
  (static_cast<bool>(condition) ? void() : assertion_failed(#condition))
#define TOML_HEADER_ONLY 1
#define TOML_ENABLE_FORMATTERS 0
#define TOML_MAX_NESTED_VALUES 32
#include <toml++/toml.h>

namespace keel::lab {
namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void fail(std::string_view text, const std::string& file, std::int64_t line,
                       std::string_view what) {
  std::size_t begin = 0;
  for (std::int64_t i = 1; i < line && begin < text.size(); ++i)
    begin = std::min(text.size(), text.find('\n', begin)) + 1;
  const auto rest = text.substr(std::min(begin, text.size()));
  const auto shown = rest.substr(0, std::min<std::size_t>(rest.find_first_of("\r\n"), 80));
  throw Error(fmt::format("{}, line {}: {} in '{}'", file, line, what, shown));
}

/// Rejects input that toml++ cannot handle. It limits the nesting of values but not of names: a.a.a. ... = 1 makes a
/// table per dot, and destroys them recursively. Where it looks for the end of a word, a non-ASCII letter reaches
/// code that it declares unreachable. So this allows only a few dots per name, non-ASCII letters only in quotes and
/// comments, and quotes only where a name or a value begins, because elsewhere toml++ takes them and their content
/// for part of a word.
void check_letters(std::string_view text, const std::string& file) {
  constexpr int kMostDots = 8;
  std::int64_t line = 1;
  int dots = 0;
  char before = '\n';  // the last non-blank character
  const auto starts = [&](std::size_t i, std::string_view what) {
    return i < text.size() && text.substr(i, what.size()) == what;
  };
  const auto beyond_ascii = [&](std::size_t i) {
    return static_cast<unsigned char>(text[i]) >= 0x80;
  };
  const auto is_control = [](char c) {
    return (c >= 0 && c < ' ' && c != '\t' && c != '\n' && c != '\r') || c == '\x7f';
  };
  for (std::size_t i = starts(0, "\xef\xbb\xbf") ? 3 : 0; i < text.size(); ++i) {
    const char c = text[i];
    if (beyond_ascii(i)) fail(text, file, line, "expected letters beyond ASCII in quotes");
    if (is_control(c)) fail(text, file, line, "expected no control character");
    if (c == '"' || c == '\'') {  // skip the string
      if (std::string_view("\n=,[{.").find(before) == std::string_view::npos)
        fail(text, file, line, "expected quotes where a name or a value begins");
      const std::string quote(starts(i, std::string(3, c)) ? 3 : 1, c);
      for (i += quote.size(); i < text.size() && !starts(i, quote); ++i) {
        if (is_control(text[i])) fail(text, file, line, "expected no control character");
        if (c == '"' && text[i] == '\\') {
          const auto next = text.find_first_not_of(" \t\r\n", ++i);
          if (next != std::string_view::npos && beyond_ascii(next))
            fail(text, file, line, "expected ASCII behind a backslash");
        }
        if (i < text.size() && text[i] == '\n') {
          if (quote.size() == 1) fail(text, file, line, "expected the quotes to end on their line");
          ++line;
        }
      }
      i += quote.size() - 1;
      // A multi-line string may end with up to two quotes of its own before the closing ones.
      for (int k = 0; quote.size() == 3 && k < 2 && starts(i + 1, std::string(1, c)); ++k) ++i;
    } else if (c == '#') {
      i = std::min(text.find('\n', i), text.size()) - 1;
      continue;
    } else if (c == '.') {
      if (++dots > kMostDots) fail(text, file, line, "a name has too many parts");
    } else if (c == '\n' || c == '=' || c == ',' || c == '{' || c == '[') {
      dots = 0;
      line += c == '\n';
    }
    if (c != ' ' && c != '\t' && c != '\r') before = c;
  }
}

class Converter {
 public:
  Converter(std::string_view text, const std::string& file, TomlLines* lines)
      : text_(text), file_(file), lines_(lines) {}

  /// toml++ sorts names. Their positions in the file restore the order.
  Json table(const toml::table& from, const std::string& path) const {
    std::vector<std::pair<const toml::key*, const toml::node*>> entries;
    for (const auto& [key, node] : from) entries.emplace_back(&key, &node);
    std::ranges::sort(entries, {}, [](const auto& entry) {
      const auto& place = entry.first->source().begin;
      return std::tie(place.line, place.column);
    });
    Json::object_t object;  // appended, because assignment by name searches all entries
    for (const auto& [key, node] : entries) {
      const std::string name(key->str()), whole = path.empty() ? name : path + "." + name;
      if (lines_ != nullptr) lines_->emplace(whole, std::int64_t(key->source().begin.line));
      object.push_back({name, value(*node, whole)});
    }
    return object;
  }

 private:
  Json value(const toml::node& node, const std::string& path) const {
    if (const auto* table_node = node.as_table()) return table(*table_node, path);
    if (const auto* list = node.as_array()) {
      Json items = Json::array();
      for (const auto& item : *list) items.push_back(value(item, path));
      return items;
    }
    if (const auto* text = node.as_string()) return text->get();
    if (const auto* flag = node.as_boolean()) return flag->get();
    if (const auto* whole = node.as_integer()) {
      if (whole->get() >= 0) return std::uint64_t(whole->get());
      return whole->get();
    }
    const auto* real = node.as_floating_point();
    if (real != nullptr && std::isfinite(real->get())) return real->get();
    fail(text_, file_, std::int64_t(node.source().begin.line),
         real != nullptr ? "expected a finite number" : "expected no date or time");
  }

  const std::string_view text_;
  const std::string& file_;
  TomlLines* const lines_;
};

}  // namespace

Json parse_toml(std::string_view text, const std::string& file, TomlLines* lines) {
  check_letters(text, file);
  toml::table root;
  try {
    root = toml::parse(text);
  } catch (const toml::parse_error& error) {
    fail(text, file, std::int64_t(error.source().begin.line), error.description());
  } catch (const std::logic_error& error) {
    throw Error(fmt::format("{} is no TOML: expected {}", file, error.what()));
  }
  return Converter(text, file, lines).table(root, "");
}

std::string toml_text(std::string_view text) {
  require(is_utf8(text), "TOML: expected text in UTF-8, got '{}'", text);
  // JSON's strings are TOML's too, except for DEL, which TOML wants escaped.
  std::string out;
  for (const char c : nlohmann::json(text).dump())
    out += c == '\x7f' ? std::string("\\u007F") : std::string(1, c);
  return out;
}

}  // namespace keel::lab
