#include "keel/layer_matrix.h"

#include "layer_matrix_stages.h"

namespace keel {

void validate(const LayerMap& map) { term::check(map); }
std::string to_string(const LayerMap& map) { return term::written(map); }
LayerMap layer_map(std::string_view text, std::string_view operation) {
  return term::read<LayerMap>(operation, text);
}

GradientRule eigh_rule(const SpectralRule& rule) {
  return std::visit(
      [](const auto& chosen) -> GradientRule {
        if constexpr (std::is_same_v<std::decay_t<decltype(chosen)>, Exact>)
          return Masked{};
        else
          return chosen;
      },
      rule);
}

}  // namespace keel
