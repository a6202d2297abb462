#include "lab/report/picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lab/report/wording.h"

namespace keel::lab::report {
namespace {

constexpr double kPanel = 340, kGap = 24, kMargin = 12, kTitle = 22, kLine = 18;

/// The height in "viewBox='0 0 340 220'".
double height_of(const std::string& svg) {
  const std::string mark = "viewBox='0 0 340 ";
  const auto found = svg.find(mark);
  return found == std::string::npos ? 220 : std::stod(svg.substr(found + mark.size()));
}

std::string placed(const Panel& panel, double x, double y, double height) {
  std::string inner = panel.svg;
  inner.insert(4, fmt::format(" x='{:g}' y='{:g}' width='{:g}' height='{:g}' overflow='visible'", x,
                              y + kTitle, kPanel, height));
  return fmt::format("<text class='title' x='{:g}' y='{:g}'>{}</text>\n{}\n", x, y + 13,
                     escaped(panel.title), inner);
}

/// Rows of swatches and labels, as many per row as fit. A label that no row has room for is cut.
std::string key_rows(const std::vector<Key>& keys, double width, double& y) {
  std::string out;
  double x = kMargin;
  for (const Key& key : keys) {
    const auto label = shortened(key.label, std::size_t((width - 2 * kMargin - 34) / kLetter));
    const double needed = 34 + kLetter * double(columns(label)) + 14;
    if (x > kMargin && x + needed > width) x = kMargin, y += kLine;
    std::string swatch = swatch_svg(key.colour);
    swatch.insert(4, fmt::format(" x='{:g}' y='{:g}' width='26' height='10'", x, y - 9));
    out += fmt::format("{}<text class='name' x='{:g}' y='{:g}'>{}</text>\n", swatch, x + 32, y,
                       escaped(label));
    x += needed;
  }
  if (!keys.empty()) y += kLine;
  return out;
}

}  // namespace

std::string picture(const std::vector<Panel>& panels, const std::vector<Key>& keys) {
  const bool wide = panels.size() > 1;
  const double width = 2 * kMargin + (wide ? 2 * kPanel + kGap : kPanel);
  std::string inner;
  double y = kMargin;
  for (std::size_t i = 0; i < panels.size(); i += 2) {
    const bool pair = wide && i + 1 < panels.size();
    const double left = height_of(panels[i].svg), right = pair ? height_of(panels[i + 1].svg) : 0;
    inner += placed(panels[i], kMargin, y, left);
    if (pair) inner += placed(panels[i + 1], kMargin + kPanel + kGap, y, right);
    y += kTitle + std::max(left, right) + kMargin;
  }
  y += 6;
  inner += key_rows(keys, width, y);
  // Needs its own background: the theme of the page around it may differ from the system's.
  return fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {0:g} {1:g}' width='{0:g}' "
      "height='{1:g}'>\n<style>{2}{3}svg {{ font-family: system-ui, sans-serif; }}\n"
      "svg text.title {{ font-size: 13px; font-weight: 600; fill: var(--ink); }}\n"
      "svg.swatch line {{ stroke-width: 3; }}</style>\n"
      "<rect width='{0:g}' height='{1:g}' rx='8' fill='var(--card)'/>\n{4}</svg>\n",
      width, std::ceil(y), kPalette, kChartStyle, inner);
}

std::string picture(std::vector<std::pair<std::string, Chart>> charts,
                    const std::vector<std::string>& labels) {
  std::vector<Key> keys;
  for (const std::string& label : labels) keys.push_back({label, int(keys.size())});
  std::vector<Panel> panels;
  for (auto& [title, chart] : charts) {
    for (Curve& curve : chart.curves) {
      const auto found = std::ranges::find(keys, curve.label, &Key::label);
      curve.colour = int(found - keys.begin());
      if (found == keys.end()) keys.push_back({curve.label, curve.colour});
    }
    panels.push_back({title, svg(chart)});
  }
  return picture(panels, keys);
}

std::string surface_svg(const std::vector<std::vector<double>>& heights, const std::string& left,
                        const std::string& right, const std::string& description) {
  // Seen from a corner: one axis goes down to the left, the other down to the right, height goes up.
  const double n = double(heights.size()) - 1, m = double(heights.front().size()) - 1;
  const auto point = [&](std::size_t i, std::size_t j) {
    const double a = double(i) / n, b = double(j) / m;
    return fmt::format("{:.1f},{:.1f} ", 170 + 140 * (b - a),
                       100 + 42 * (a + b) - 85 * heights[i][j]);
  };
  std::string out =
      fmt::format("<svg viewBox='0 0 340 220' role='img' aria-label='{}'>", escaped(description));
  const auto line = [&](const std::string& points, int colour) {
    out += fmt::format(
        "<polyline class='line' style='stroke-width:1' stroke='var(--c{})' points='{}'/>", colour,
        points.substr(0, points.size() - 1));
  };
  for (std::size_t i = 0; i < heights.size(); ++i) {
    std::string points;
    for (std::size_t j = 0; j < heights[i].size(); ++j) points += point(i, j);
    line(points, 0);
  }
  for (std::size_t j = 0; j < heights.front().size(); ++j) {
    std::string points;
    for (std::size_t i = 0; i < heights.size(); ++i) points += point(i, j);
    line(points, 1);
  }
  out += fmt::format("<text x='60' y='206' text-anchor='middle'>{}</text>", escaped(left));
  out += fmt::format("<text x='280' y='206' text-anchor='middle'>{}</text>", escaped(right));
  return out + "</svg>";
}

}  // namespace keel::lab::report
