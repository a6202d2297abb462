#pragma once

// Rules, rank policies, maps and functions as text, in one form for C++, operators, Python and logs:
//
//     power_iteration(terms=19)          zca(eps=0.01, rank=leading_count(count=8))
//
// A struct that can be written this way has a name and lists its fields once:
//
//     static constexpr const char* kName = "power_iteration";
//     static void fields(auto& self, auto&& visit) { visit("terms", self.terms, term::kFromOne); }
//
// A second name that is read too is its kAlias. A std::variant of such structs can then use everything below. Reading is strict and ignores the
// locale. Fields may come in any order. A missing field takes its value from the field of the same
// name in the enclosing term, if there is one, and its default otherwise: in zca(eps=0.01,
// rank=algorithm1) both eps are 0.01. An empty optional is written "off".

#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace keel::term {

/// The range of numbers that a field may hold. They must also be finite.
struct Range {
  double least, most = std::numeric_limits<double>::infinity();
  bool open = false;  ///< without `least` itself
};
inline constexpr Range kAny{-std::numeric_limits<double>::infinity()}, kFromZero{0}, kFromOne{1},
    kAboveZero{.least = 0, .open = true}, kFraction{.least = 0, .most = 1, .open = true};

template <typename A>
concept Term = requires {
  A::kName;
};

template <typename A>
inline constexpr bool kIsVariant = false;
template <typename... A>
inline constexpr bool kIsVariant<std::variant<A...>> = true;

/// The shortest text that reads back as the same number.
std::string written(double number);
std::string written(std::int64_t number);
inline std::string written(int number) { return written(std::int64_t(number)); }
inline std::string written(bool flag) { return flag ? "true" : "false"; }
inline std::string written(const std::optional<double>& number) {
  return number ? written(*number) : "off";
}
template <Term A>
std::string written(const A& value);
template <typename... A>
std::string written(const std::variant<A...>& value) {
  return std::visit([](const auto& chosen) { return written(chosen); }, value);
}

/// name(field=value, ...). An empty optional is left out if it is empty by default.
template <typename A>
std::string written(const char* name, const A& value) {
  std::uint32_t empty = 0, bit = 1;
  A::fields(A{}, [&](const char*, const auto& member, const auto&...) {
    if constexpr (std::is_same_v<decltype(member), const std::optional<double>&>)
      if (!member) empty |= bit;
    bit <<= 1;
  });
  std::string list;
  bit = 1;
  A::fields(value, [&](const char* field, const auto& member, const auto&...) {
    const std::string number = written(member);
    if (!((empty & bit) && number == "off"))
      list += (list.empty() ? "" : ", ") + std::string(field) + "=" + number;
    bit <<= 1;
  });
  return name + (list.empty() ? "" : "(" + list + ")");
}
template <Term A>
std::string written(const A& value) {
  return written(A::kName, value);
}

/// The names of a variant's alternatives.
template <typename Variant>
std::vector<std::string> names() {
  return []<typename... A>(std::type_identity<std::variant<A...>>) {
    return std::vector<std::string>{A::kName...};
  }(std::type_identity<Variant>());
}

/// "a, b or c"
std::string choice(const std::vector<std::string>& names);

/// The integers that a field of this type may hold.
struct Limits {
  std::int64_t least, most;
};
template <std::integral Integer>
constexpr Limits limits(const Range& range) {
  using Type = std::numeric_limits<Integer>;
  return {range.least > double(Type::min()) ? std::int64_t(range.least) : Type::min(),
          range.most < double(Type::max()) ? std::int64_t(range.most) : Type::max()};
}

/// Throws keel::Error, prefixed with `who`, unless the field's value is in its range.
void check(const char* who, const char* field, double number, const Range& range);
void check(const char* who, const char* field, std::int64_t number, const Limits& limits);

/// The same for every field of a struct.
template <typename A>
void check(const char* who, const A& value) {
  A::fields(value, [&](const char* field, const auto& member, const auto&... range) {
    using Member = std::decay_t<decltype(member)>;
    if constexpr (kIsVariant<Member>)
      std::visit([](const auto& inside) { check(inside.kName, inside); }, member);
    else if constexpr (std::is_same_v<Member, std::optional<double>>)
      member ? check(who, field, *member, range...) : void();
    else if constexpr (std::is_same_v<Member, double>)
      check(who, field, member, range...);
    else if constexpr (!std::is_same_v<Member, bool>)
      check(who, field, std::int64_t(member), limits<Member>(range...));
  });
}
template <typename... A>
void check(const std::variant<A...>& value) {
  std::visit([](const auto& chosen) { check(chosen.kName, chosen); }, value);
}

/// Reads a term from left to right. Errors are keel::Error: the message names `operation`, what was
/// expected, what it got and where.
class Reader {
 public:
  Reader(std::string_view operation, std::string_view text) : operation_(operation), text_(text) {}

  /// Reads the alternative whose name comes next. Returns a bit mask of the fields that were given.
  template <typename... A>
  std::uint32_t next(std::variant<A...>& value) {
    const std::size_t start = place();
    const std::string_view name = word();
    std::uint32_t given = 0;
    const auto is = [&]<typename Chosen>(Chosen chosen) {
      bool named = name == Chosen::kName;
      if constexpr (requires { Chosen::kAlias; }) named = named || name == Chosen::kAlias;
      if (!named) return false;
      given = fields(chosen);
      value = chosen;
      return true;
    };
    if (!(is(A{}) || ...)) fail(start, choice({A::kName...}));
    return given;
  }

  /// Reads (field=value, ...), or nothing.
  template <typename A>
  std::uint32_t fields(A& value) {
    std::uint32_t given = 0, given_inside = 0;
    if (take('(') && !take(')')) {
      do {
        const std::size_t start = place();
        const std::string_view name = word();
        std::uint32_t bit = 1, found = 0;
        A::fields(value, [&](const char* field, auto& member, const auto&... range) {
          if (name == field) {
            found = bit;
            if (given & bit) fail(start, std::string(field) + " once");
            expect('=');
            if constexpr (kIsVariant<std::decay_t<decltype(member)>>)
              given_inside = next(member);
            else
              read(field, member, range...);
          }
          bit <<= 1;
        });
        if (!found) fail(start, field_names<A>(value));
        given |= found;
      } while (take(','));
      expect(')');
    }
    A::fields(value, [&](const char*, auto& member, const auto&...) {
      if constexpr (kIsVariant<std::decay_t<decltype(member)>>)
        std::visit([&](auto& inside) { take_from(value, inside, given_inside); }, member);
    });
    return given;
  }

  /// place() skips blanks and returns the position of the next word. word() returns that word:
  /// everything up to the next punctuation mark or blank.
  std::size_t place();
  std::string_view word();
  /// Fails unless the text ends here.
  void end();

  [[noreturn]] void fail(std::size_t place, const std::string& expected) const;

 private:
  bool take(char mark);
  void expect(char mark);

  void read(const char* field, double& number, const Range& range);
  void read(const char* field, std::optional<double>& number, const Range& range);
  void read(const char* field, bool& flag);
  void read(const char* field, std::int64_t& number, const Limits& limits);
  template <std::integral Integer>
  void read(const char* field, Integer& number, const Range& range) {
    std::int64_t wide = 0;
    read(field, wide, limits<Integer>(range));
    number = Integer(wide);
  }

  template <typename A>
  static std::string field_names(const A& value) {
    std::vector<std::string> known;
    A::fields(value, [&](const char* field, const auto&...) {
      known.push_back(std::string(field) + "=...");
    });
    return known.empty() ? "no fields" : choice(known);
  }

  /// Fills the fields of `inside` that were not given from the fields of the same name in `around`.
  template <typename Around, typename Inside>
  static void take_from(const Around& around, Inside& inside, std::uint32_t given) {
    std::uint32_t bit = 1;
    Inside::fields(inside, [&](const char* name, auto& to, const auto&...) {
      if (!(given & bit))
        Around::fields(around, [&](const char* other, const auto& from, const auto&...) {
          if constexpr (std::is_same_v<decltype(from), const double&> &&
                        std::is_same_v<decltype(to), std::optional<double>&>)
            if (std::string_view(name) == other) to = from;
        });
      bit <<= 1;
    });
  }

  std::string_view operation_, text_;
  std::size_t at_ = 0;
};

/// Reads a variant from text and checks it.
template <typename Variant>
Variant read(std::string_view operation, std::string_view text) {
  Variant value;
  Reader reader(operation, text);
  reader.next(value);
  reader.end();
  return value;
}

template <typename... A, typename... B>
std::variant<A..., B...> joined(const std::variant<A...>&, const std::variant<B...>&);
/// A variant with the alternatives of both.
template <typename A, typename B>
using Joined = decltype(joined(std::declval<A>(), std::declval<B>()));

}  // namespace keel::term

namespace keel {

template <term::Term A>
bool operator==(const A& a, const A& b) {
  return term::written(a) == term::written(b);
}

}  // namespace keel
