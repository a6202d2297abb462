#include "lab/reproduce/measure.h"

#include <map>

#include "lab/require.h"

namespace keel::lab::reproduce {

const Kind& kind_of(const Recipe& recipe) {
  static const std::map<std::string, const Kind*> kinds = {
      {"terms", &kTerms},   {"surface", &kSurface},
      {"timing", &kTiming}, {"gradient_error", &kGradientError},
      {"bounds", &kBounds}, {"conditions", &kConditions}};
  const auto found = kinds.find(recipe.kind);
  require(found != kinds.end(), "{}: no kind of experiment is called '{}'", recipe.name,
          recipe.kind);
  return *found->second;
}

}  // namespace keel::lab::reproduce
