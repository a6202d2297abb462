#include "lab/data/shapes.h"

#include <algorithm>
#include <cmath>

namespace keel::lab {
namespace {

double disc(double x, double y) { return std::hypot(x, y) - 0.85; }
double ring(double x, double y) { return std::abs(std::hypot(x, y) - 0.7) - 0.2; }
double box(double x, double y, double half_width, double half_height) {
  return std::max(std::abs(x) - half_width, std::abs(y) - half_height);
}
double square(double x, double y) { return box(x, y, 0.75, 0.75); }
double triangle(double x, double y) {
  return std::max({y, 0.866 * x - 0.5 * y, -0.866 * x - 0.5 * y}) - 0.48;
}
double cross(double x, double y) { return std::min(box(x, y, 0.92, 0.27), box(x, y, 0.27, 0.92)); }
double star(double x, double y) {
  return 0.75 * (std::hypot(x, y) - 0.62 - 0.3 * std::cos(5 * std::atan2(y, x)));
}
double crescent(double x, double y) {
  return std::max(std::hypot(x, y) - 0.9, 0.75 - std::hypot(x - 0.45, y));
}
double bars(double x, double y) {
  return std::max(std::abs(x) - 0.85, std::min(std::abs(y), std::abs(std::abs(y) - 0.66)) - 0.19);
}
double checker(double x, double y) {
  const double nearest = std::min(std::abs(x), std::abs(y));
  return std::max(box(x, y, 0.82, 0.82), x * y > 0 ? -nearest : nearest);
}
double dots(double x, double y) {
  return std::hypot(std::abs(x) - 0.52, std::abs(y) - 0.52) - 0.32;
}

}  // namespace

const std::vector<std::string>& shape_names() {
  static const std::vector<std::string> names{"disc", "ring",     "square", "triangle", "cross",
                                              "star", "crescent", "bars",   "checker",  "dots"};
  return names;
}

double shape_distance(int shape, double x, double y) {
  static constexpr double (*kShapes[])(double, double) = {disc, ring,     square, triangle, cross,
                                                          star, crescent, bars,   checker,  dots};
  return kShapes[shape](x, y);
}

}  // namespace keel::lab
