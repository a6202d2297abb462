#pragma once

// Numbers and words as people read them, shared by the page, the table and the progress bar.

#include <string>

namespace keel::lab::report {

/// With `&`, `<`, `>` and quotes made harmless for HTML text and attributes.
std::string escaped(const std::string& text);

/// Four significant digits and no more zeros than needed: 0.1, 1.5e-05, 12000; "-" where not finite.
std::string number(double value);

/// An axis label: 0, 0.25, 1500, 20k, 1e-4.
std::string tick(double value);

/// A fraction in percent with `digits` decimals, "12.3 %"; "-" where not finite.
std::string percent(double fraction, int digits = 1);

/// 5.0 s, 2:05, 1:02:05; "-" where not finite.
std::string duration(double seconds);

/// The first `limit` columns of UTF-8 text.
std::string cut(const std::string& text, std::size_t limit);

/// How many columns a terminal needs for UTF-8 text (every character taken as one column).
std::size_t columns(const std::string& text);

}  // namespace keel::lab::report
