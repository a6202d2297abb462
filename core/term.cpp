#include "keel/term.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "keel/error.h"
#include "text.h"

namespace keel::term {

namespace {

bool is_mark(char c) { return c == ' ' || c == ',' || c == '(' || c == ')' || c == '='; }

bool holds(const Range& range, double number) {
  const bool above = range.open ? number > range.least : number >= range.least;
  return std::isfinite(number) && above && number <= range.most;
}

std::string numbers(const Range& range) {
  if (std::isfinite(range.most))
    return "a number in " + std::string(range.open ? "(" : "[") + text(range.least) + ", " +
           text(range.most) + "]";
  if (!std::isfinite(range.least)) return "a finite number";
  return std::string("a finite number ") + (range.open ? "> " : ">= ") + text(range.least);
}

std::string numbers(const Limits& limits) {
  return "a whole number from " + text(limits.least) + " to " + text(limits.most);
}

std::string is_to_be(const char* field, const std::string& what) {
  return field + std::string(" to be ") + what;
}

/// Quotes user input in messages, with unprintable characters replaced.
std::string quoted(std::string_view given, std::size_t most) {
  std::string result = "\"";
  for (const char c : given.substr(0, most)) result += c >= ' ' && c <= '~' ? c : '?';
  return result + (given.size() > most ? "...\"" : "\"");
}

template <typename Number>
bool parse(std::string_view token, Number& number) {
  const char* const end = token.data() + token.size();
  const auto [stop, error] = std::from_chars(token.data(), end, number);
  return error == std::errc() && stop == end;
}

}  // namespace

std::string written(double number) { return text(number); }
std::string written(std::int64_t number) { return text(number); }

std::string choice(const std::vector<std::string>& names) {
  std::string list;
  for (std::size_t i = 0; i < names.size(); ++i)
    list += (i == 0 ? "" : i + 1 < names.size() ? ", " : " or ") + names[i];
  return list;
}

void check(const char* who, const char* field, double number, const Range& range) {
  if (!holds(range, number))
    throw Error(std::string("keel::") + who + ": expected " + is_to_be(field, numbers(range)) +
                ", got " + text(number));
}

void check(const char* who, const char* field, std::int64_t number, const Limits& limits) {
  if (number < limits.least || number > limits.most)
    throw Error(std::string("keel::") + who + ": expected " + is_to_be(field, numbers(limits)) +
                ", got " + text(number));
}

std::size_t Reader::place() {
  while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  return at_;
}

std::string_view Reader::word() {
  const std::size_t start = at_;
  while (at_ < text_.size() && !is_mark(text_[at_])) ++at_;
  return text_.substr(start, at_ - start);
}

bool Reader::take(char mark) {
  if (place() == text_.size() || text_[at_] != mark) return false;
  ++at_;
  return true;
}

void Reader::expect(char mark) {
  if (!take(mark)) fail(at_, mark == ')' ? "\",\" or \")\"" : quoted({&mark, 1}, 1));
}

void Reader::end() {
  if (place() < text_.size()) fail(at_, "the end");
}

void Reader::fail(std::size_t place, const std::string& expected) const {
  constexpr std::size_t kToken = 40, kText = 160;
  const auto rest = text_.substr(place);
  const auto stop = std::find_if(rest.begin(), rest.end(), is_mark);
  const auto came = rest.substr(0, std::max<std::size_t>(1, std::size_t(stop - rest.begin())));
  std::string message(operation_);
  message +=
      ": expected " + expected + ", got " + (came.empty() ? "the end" : quoted(came, kToken));
  if (came != text_) message += " at character " + text(place + 1) + " of " + quoted(text_, kText);
  throw Error(message);
}

void Reader::read(const char* field, double& number, const Range& range) {
  const std::size_t start = place();
  if (!parse(word(), number) || !holds(range, number)) fail(start, is_to_be(field, numbers(range)));
}

void Reader::read(const char* field, std::optional<double>& number, const Range& range) {
  const std::size_t start = place();
  const std::string_view given = word();
  number.reset();
  if (given == "off") return;
  if (!parse(given, number.emplace()) || !holds(range, *number))
    fail(start, is_to_be(field, numbers(range) + " or off"));
}

void Reader::read(const char* field, bool& flag) {
  const std::size_t start = place();
  const std::string_view given = word();
  flag = given == "true";
  if (!flag && given != "false") fail(start, is_to_be(field, "true or false"));
}

void Reader::read(const char* field, std::int64_t& number, const Limits& limits) {
  const std::size_t start = place();
  if (!parse(word(), number) || number < limits.least || number > limits.most)
    fail(start, is_to_be(field, numbers(limits)));
}

}  // namespace keel::term
