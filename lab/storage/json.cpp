#include "lab/storage/json.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "lab/require.h"

namespace keel::lab {
namespace {

using nlohmann::json;

/// Checks everything without keeping it, so that errors are found before any value is made. (The parser's own
/// callback could do this, but it walks over all entries of an object at its end.)
class Checker : public nlohmann::json_sax<json> {
 public:
  explicit Checker(std::size_t most_names) : most_names_(most_names) {}

  const std::string& what() const { return what_; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return open(); }
  bool start_array(std::size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    auto& names = names_.back();
    if (names.size() >= most_names_)
      return fail(fmt::format("has more than {} names in one object", most_names_));
    if (names.insert(name).second) return true;
    return fail(fmt::format("has the name '{}' twice in one object", name.substr(0, 80)));
  }
  bool parse_error(std::size_t, const std::string&,
                   const nlohmann::detail::exception& error) override {
    return fail("is no JSON: " + words_of(error));  // "parse error at line 1, ..."
  }

 private:
  bool open() {
    if (int(names_.size()) == kDeepestJson)
      return fail(fmt::format("is nested deeper than {} values", kDeepestJson));
    names_.emplace_back();
    return true;
  }
  bool close() {
    names_.pop_back();
    return true;
  }
  bool fail(const std::string& what) {
    what_ = what;
    return false;
  }

  const std::size_t most_names_;
  std::vector<std::set<std::string>> names_;  ///< of each open object; empty for a list
  std::string what_;
};

template <typename Json>
Json parse(std::string_view text, const std::string& file, std::size_t most_names) {
  Checker checker(most_names);
  if (!json::sax_parse(text.begin(), text.end(), &checker))
    throw Error(fmt::format("{} {}", file, checker.what()));
  return Json::parse(text.begin(), text.end());
}

}  // namespace

json parse_json(std::string_view text, const std::string& file) {
  return parse<json>(text, file, std::numeric_limits<std::size_t>::max());
}

nlohmann::ordered_json parse_ordered_json(std::string_view text, const std::string& file) {
  return parse<nlohmann::ordered_json>(text, file, 10'000);
}

std::string words_of(const std::exception& error) {
  const std::string words = error.what();
  const auto begin = words.find("] ");
  return begin == std::string::npos ? words : words.substr(begin + 2);
}

bool is_utf8(std::string_view text) {
  try {
    json(text).dump();
    return true;
  } catch (const json::type_error&) {
    return false;
  }
}

double number_or_nan(const nlohmann::ordered_json& value) {
  return value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
}

json finite_or_null(double number) { return std::isfinite(number) ? json(number) : json(); }

std::int64_t whole_number(const json& object, const char* name, std::int64_t least) {
  const auto found = object.is_object() ? object.find(name) : object.end();
  require(object.is_object() && found != object.end(), "expected a whole number '{}', got none",
          name);
  constexpr auto kMost = std::uint64_t(std::numeric_limits<std::int64_t>::max());
  const bool fits = found->is_number_integer() &&
                    (!found->is_number_unsigned() || found->get<std::uint64_t>() <= kMost) &&
                    found->get<std::int64_t>() >= least;
  require(fits, "expected {} to be a whole number >= {}, got {}", name, least,
          found->dump().substr(0, 40));
  return found->get<std::int64_t>();
}

}  // namespace keel::lab
