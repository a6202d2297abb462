#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "lab/report/svg.h"
#include "lab/report/wording.h"

namespace keel::lab::report {
namespace {

constexpr int kLevels = 12;  // shades on either side of zero
constexpr std::size_t kLargest = 96;

using Matrix = std::vector<std::vector<double>>;

Matrix coarse(const Matrix& matrix) {
  const std::size_t n = matrix.size();
  const std::size_t block = (n + kLargest - 1) / kLargest;
  if (block <= 1) return matrix;
  const std::size_t rows = (n + block - 1) / block;
  Matrix out(rows, std::vector<double>(rows, 0));
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t j = 0; j < rows; ++j) {
      int count = 0;
      for (std::size_t k = i * block; k < std::min(n, (i + 1) * block); ++k)
        for (std::size_t l = j * block; l < std::min(n, (j + 1) * block); ++l, ++count)
          out[i][j] += matrix[k][l];
      out[i][j] /= count;
    }
  }
  return out;
}

}  // namespace

std::string matrix_svg(const Matrix& given, double limit, const std::string& description) {
  const Matrix matrix = coarse(given);
  const std::size_t n = matrix.size();
  // One path per colour, so that a cell takes a dozen bytes instead of a <rect> of eighty. Neighbouring cells of one
  // colour share a stroke.
  std::array<std::string, 2 * kLevels + 1> paths;
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n;) {
      const auto level = [&](std::size_t column) {
        const double value = matrix[i][column];
        if (!std::isfinite(value)) return 0;
        return int(std::lround(std::clamp(value / limit, -1.0, 1.0) * kLevels));
      };
      const int here = level(j);
      std::size_t end = j + 1;
      while (end < n && level(end) == here) ++end;
      if (here != 0)
        paths[std::size_t(here + kLevels)] +=
            fmt::format("M{} {}h{}v1h-{}z", j, i, end - j, end - j);
      j = end;
    }
  }
  std::string out = fmt::format(
      "<svg class='matrix' viewBox='0 0 {0} {0}' role='img' aria-label='{1}' "
      "shape-rendering='crispEdges'><rect class='none' width='{0}' height='{0}'/>",
      n, escaped(description));
  for (int level = -kLevels; level <= kLevels; ++level) {
    const auto& path = paths[std::size_t(level + kLevels)];
    if (path.empty()) continue;
    out +=
        fmt::format("<path fill='var(--{})' fill-opacity='{:.2f}' d='{}'/>",
                    level < 0 ? "negative" : "positive", std::abs(level) / double(kLevels), path);
  }
  return out + "</svg>";
}

std::string matrix_key_svg(double limit) {
  constexpr double cell = 8, width = cell * (2 * kLevels + 1);
  std::string out =
      fmt::format("<svg class='key' viewBox='-16 0 {:g} 26' aria-hidden='true'>", width + 32);
  for (int level = -kLevels; level <= kLevels; ++level) {
    out += fmt::format(
        "<rect x='{:g}' width='{:g}' height='9' fill='var(--{})' fill-opacity='{:.2f}'/>",
        (level + kLevels) * cell, cell, level < 0 ? "negative" : "positive",
        std::abs(level) / double(kLevels));
  }
  const auto label = [&](double x, double value) {
    out += fmt::format("<text x='{:g}' y='22' text-anchor='middle'>{:.2g}</text>", x, value);
  };
  label(cell / 2, -limit);
  label(width / 2, 0);
  label(width - cell / 2, limit);
  return out + "</svg>";
}

}  // namespace keel::lab::report
