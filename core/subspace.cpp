#include "keel/subspace.h"

#include "subspace_rule.h"

namespace keel {

void validate(const SubspaceMap& map) { term::check(map); }
std::string to_string(const SubspaceMap& map) { return term::written(map); }
SubspaceMap subspace_map(std::string_view text, std::string_view operation) {
  return term::read<SubspaceMap>(operation, text);
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
