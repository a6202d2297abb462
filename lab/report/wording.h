#pragma once

// Numbers and text for people, shared by pages, tables and the progress bar.

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <utility>

namespace keel::lab::report {

/// The text without what a terminal would obey or be misled by, for names that come from files and folders:
/// control characters other than line ends and tabs, bytes that are no UTF-8, and marks that reverse the order of
/// letters are spelled out, such as \x1b and \u202e.
std::string harmless(const std::string& text);

/// Writes the bytes and ignores errors, because a log on a full disk must not end a run.
inline void put_raw(std::FILE* out, const std::string& bytes) noexcept {
  std::fwrite(bytes.data(), 1, bytes.size(), out);
  std::fflush(out);
}

/// The same with harmless(text). The program prints everything with this.
inline void put(std::FILE* out, const std::string& text) { put_raw(out, harmless(text)); }
template <typename First, typename... Rest>
void put(std::FILE* out, fmt::format_string<First, Rest...> text, First&& first, Rest&&... rest) {
  put(out, fmt::format(text, std::forward<First>(first), std::forward<Rest>(rest)...));
}

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

/// "4.54 ± 0.08", without a deviation that is not finite; "-" if there is no mean.
std::string mean_text(double mean, double deviation);

/// 5.0 s, 2:05, 1:02:05; "-" if not finite.
std::string duration(double seconds);

/// The first `limit` columns of UTF-8 text.
std::string cut(const std::string& text, std::size_t limit);

/// The text, or as much of it as fits into `limit` columns with an ellipsis.
std::string shortened(const std::string& text, std::size_t limit);

/// The number of terminal columns of UTF-8 text, taking every character as one column.
std::size_t columns(const std::string& text);

}  // namespace keel::lab::report
