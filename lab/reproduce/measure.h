#pragma once

// Experiments that are not tables of trainings. They are computed or measured in this process.

#include <functional>
#include <optional>
#include <string>

#include "lab/reproduce/page.h"

namespace keel::lab::reproduce {

struct Measuring {
  const Recipe& recipe;
  TrainOptions options;  ///< the recipe's, with those of the command line
  std::function<void(const std::string&)> say = [](const std::string&) {};
};

struct Measured {
  Json figures;  ///< an object; its lists are written one item per line
  std::optional<Data> data = std::nullopt;
  std::string device = "cpu";
};

/// Runs the measurement of the recipe's kind. Throws keel::Error if the kind is unknown.
Measured measure(const Measuring& what);
Page measured_body(const Recipe& recipe, const Results& results);

/// Table 1: how many terms the series needs.
Measured measure_terms(const Measuring& what);
Page terms_body(const Recipe& recipe, const Results& results);
/// Figure 1: ratio^k.
Measured measure_surface(const Measuring& what);
Page surface_body(const Recipe& recipe, const Results& results);
/// Whole training steps with each layer.
Measured measure_timing(const Measuring& what);
Page timing_body(const Recipe& recipe, const Results& results);
/// Each rule's gradient on a training's covariances against the exact one.
Measured measure_gradient_error(const Measuring& what);
Page gradient_error_body(const Recipe& recipe, const Results& results);
/// The largest gradient each rule can give.
Measured measure_bounds(const Measuring& what);
Page bounds_body(const Recipe& recipe, const Results& results);
/// Layers on activations that are hard in one way each.
Measured measure_conditions(const Measuring& what);
Page conditions_body(const Recipe& recipe, const Results& results);

}  // namespace keel::lab::reproduce
