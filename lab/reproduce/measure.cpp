#include "lab/reproduce/measure.h"

#include <map>

#include "lab/require.h"

namespace keel::lab::reproduce {
namespace {

struct Kind {
  Measured (*measure)(const Measuring&);
  Page (*body)(const Recipe&, const Results&);
};

const Kind& kind_of(const Recipe& recipe) {
  static const std::map<std::string, Kind> kinds = {
      {"terms", {measure_terms, terms_body}},
      {"surface", {measure_surface, surface_body}},
      {"timing", {measure_timing, timing_body}},
      {"gradient_error", {measure_gradient_error, gradient_error_body}},
      {"bounds", {measure_bounds, bounds_body}},
      {"conditions", {measure_conditions, conditions_body}}};
  const auto found = kinds.find(recipe.kind);
  require(found != kinds.end(), "keel reproduce: {}: no kind of experiment is called '{}'",
          recipe.name, recipe.kind);
  return found->second;
}

}  // namespace

Measured measure(const Measuring& what) { return kind_of(what.recipe).measure(what); }

Page measured_body(const Recipe& recipe, const Results& results) {
  return kind_of(recipe).body(recipe, results);
}

}  // namespace keel::lab::reproduce
