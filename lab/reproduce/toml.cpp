#include "lab/reproduce/toml.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <vector>

#include "keel/error.h"

namespace keel::lab::reproduce {
namespace {

class Parser {
 public:
  Parser(const std::string& text, const std::string& file) : text_(text), file_(file) {}

  Json whole() {
    Json root = Json::object();
    Json* table = &root;
    for (skip_lines(); !at_end(); skip_lines()) {
      if (take('['))
        table = &opened(root);
      else
        add_pair(*table);
      skip_blanks();
      if (!at_end() && peek() != '\n') fail("expected the end of the line");
    }
    return root;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    const auto line = 1 + std::count(text_.begin(), text_.begin() + std::ptrdiff_t(at_), '\n');
    const std::string found = at_end() ? "the file's end" : fmt::format("'{}'", text_[at_]);
    throw Error(fmt::format("{}, line {}: {}, got {}", file_, line, what, found));
  }

  bool at_end() const { return at_ >= text_.size(); }
  char peek() const { return at_end() ? '\0' : text_[at_]; }
  bool take(char wanted) {
    if (at_end() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }
  bool take(const char* wanted) {
    const std::string word = wanted;
    if (text_.compare(at_, word.size(), word) != 0) return false;
    at_ += word.size();
    return true;
  }
  void skip_blanks() {
    while (peek() == ' ' || peek() == '\t' || peek() == '\r') ++at_;
    if (peek() == '#')
      while (!at_end() && peek() != '\n') ++at_;
  }
  void skip_lines() {
    for (skip_blanks(); peek() == '\n'; skip_blanks()) ++at_;
  }

  std::string key() {
    skip_blanks();
    if (peek() == '"' || peek() == '\'') return line_of_text();
    std::string name;
    while (std::isalnum(static_cast<unsigned char>(peek())) || peek() == '-' || peek() == '_')
      name += text_[at_++];
    if (name.empty()) fail("expected a name");
    return name;
  }

  /// [a.b]: the table b in the table a, made where it is not there.
  Json& opened(Json& root) {
    Json* table = &root;
    do {
      table = &(*table)[key()];
      if (!table->is_null() && !table->is_object()) fail("expected the name of a table");
      skip_blanks();
    } while (take('.'));
    if (!take(']')) fail("expected ']'");
    if (!table->is_null()) fail("expected each table once");
    *table = Json::object();
    return *table;
  }

  void add_pair(Json& table) {
    const std::string name = key();
    skip_blanks();
    if (table.contains(name)) fail(fmt::format("expected '{}' once", name));
    if (!take('=')) fail(fmt::format("expected '=' after '{}'", name));
    table[name] = value();
  }

  Json value() {
    skip_blanks();
    if (take("\"\"\"")) return lines_of_text();
    if (peek() == '"' || peek() == '\'') return line_of_text();
    if (take('[')) return list();
    if (take('{')) return braced();
    if (take("true")) return true;
    if (take("false")) return false;
    return number();
  }

  std::string line_of_text() {
    const char quote = text_[at_++];
    std::string text;
    while (peek() != quote) {
      if (at_end() || peek() == '\n') fail("expected the end of the text");
      text += quote == '"' ? character() : text_[at_++];
    }
    ++at_;
    return text;
  }

  std::string lines_of_text() {
    take('\n');
    std::string text;
    while (!take("\"\"\"")) {
      if (at_end()) fail("expected the end of the text");
      text += character();
    }
    return text;
  }

  char character() {
    if (!take('\\')) return text_[at_++];
    for (const auto& [escape, meant] :
         {std::pair('n', '\n'), {'t', '\t'}, {'"', '"'}, {'\\', '\\'}})
      if (take(escape)) return meant;
    fail("expected one of n, t, \" and \\ after a backslash");
  }

  Json list() {
    Json items = Json::array();
    for (skip_lines(); !take(']'); skip_lines()) {
      items.push_back(value());
      skip_lines();
      if (!take(',') && peek() != ']') fail("expected ',' or ']'");
    }
    return items;
  }

  Json braced() {
    Json table = Json::object();
    for (skip_lines(); !take('}'); skip_lines()) {
      add_pair(table);
      skip_lines();
      if (!take(',') && peek() != '}') fail("expected ',' or '}'");
    }
    return table;
  }

  Json number() {
    const auto begin = at_;
    while (std::isalnum(static_cast<unsigned char>(peek())) || peek() == '-' || peek() == '+' ||
           peek() == '.')
      ++at_;
    const char *first = text_.data() + begin, *last = text_.data() + at_;
    const auto is = [&](auto& number) {
      return first != last && std::from_chars(first, last, number).ptr == last;
    };
    std::uint64_t count = 0;
    std::int64_t whole = 0;
    double real = 0;
    if (is(count)) return count;
    if (is(whole)) return whole;
    if (is(real)) return real;
    at_ = begin;
    fail("expected a value");
  }

  const std::string& text_;
  const std::string& file_;
  std::size_t at_ = 0;
};

}  // namespace

Json parse_toml(const std::string& text, const std::string& file) {
  return Parser(text, file).whole();
}

}  // namespace keel::lab::reproduce
