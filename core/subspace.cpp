#include "keel/subspace.h"

#include <cmath>

#include "keel/error.h"
#include "subspace_rule.h"
#include "text.h"

namespace keel {

namespace {

const char* name(const Zca&) { return "zca"; }
const char* name(const PcaDenoising&) { return "pca_denoising"; }
const char* name(const PcaWhitening&) { return "pca_whitening"; }

}  // namespace

void validate(const SubspaceMap& map) {
  std::visit(
      [](const auto& m) {
        require(
            std::isfinite(m.eps) && m.eps >= 0,
            std::string("keel::") + name(m) + ": expected a finite eps >= 0, got " + text(m.eps));
        validate(m.rank);
      },
      map);
}

std::string to_string(const SubspaceMap& map) {
  return std::visit(
      [](const auto& m) {
        return std::string(name(m)) + "(eps=" + text(m.eps) + ", rank=" + to_string(m.rank) + ")";
      },
      map);
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
