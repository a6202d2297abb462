#pragma once

// Numbers and text for people, shared by pages, tables and the progress bar.

#include <string>

namespace keel::lab::report {

/// Escapes `&`, `<`, `>` and quotes for HTML text and attributes.
std::string escaped(const std::string& text);

/// Text from a file, without what Markdown would take for HTML or for the end of a table's cell.
std::string in_markdown(const std::string& text);

/// Four significant digits without trailing zeros: 0.1, 1.5e-05, 12000; "-" if not finite.
std::string number(double value);

/// An axis label: 0, 0.25, 1500, 20k, 1e-4.
std::string tick(double value);

/// A fraction in percent with `digits` decimals, "12.3 %"; "-" if not finite.
std::string percent(double fraction, int digits = 1);

/// 5.0 s, 2:05, 1:02:05; "-" if not finite.
std::string duration(double seconds);

/// The first `limit` columns of UTF-8 text.
std::string cut(const std::string& text, std::size_t limit);

/// The number of terminal columns of UTF-8 text, taking every character as one column.
std::size_t columns(const std::string& text);

}  // namespace keel::lab::report
