#include "lab/train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace keel::lab {
namespace {

/// Goes from `from` to `to` along half a cosine as x goes from 0 to 1.
double eased(double from, double to, double x) {
  return to + (from - to) * (1 + std::cos(std::numbers::pi * std::clamp(x, 0.0, 1.0))) / 2;
}

}  // namespace

double learning_rate(const TrainOptions& options, std::int64_t done, std::int64_t steps) {
  const double highest = options.learning_rate;
  if (options.schedule == "constant") return highest;
  if (options.schedule == "paper") {
    // In integers, so that the sevenths of a run do not depend on rounding.
    const std::int64_t drops =
        (7 * done >= 2 * steps) + (7 * done >= 4 * steps) + (7 * done >= 6 * steps);
    return highest * std::pow(0.1, drops);
  }
  // The same end points as PyTorch's OneCycleLR.
  const double first = highest / 25, last = first / 1e4;
  const double top = std::max(options.warm_up * double(steps) - 1, 0.0), end = double(steps - 1);
  if (top > 0 && double(done) <= top) return eased(first, highest, double(done) / top);
  return eased(highest, last, end > top ? (double(done) - top) / (end - top) : 0);
}

}  // namespace keel::lab
