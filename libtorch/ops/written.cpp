// For Python: checks the text of a rule, policy, map or function, and returns it with every field written out.

#include "check.h"
#include "keel/layer_matrix.h"
#include "keel/torch/singular.h"

namespace keel::ops {
namespace {

std::string written(StringView kind, StringView given) {
  const std::string wanted = text(kind);
  const auto by = [&](auto reader, const char* name) {
    return to_string(parsed(reader, name, given));
  };
  if (wanted == "spectral_rule") return by(spectral_rule, "keel::spectral_rule");
  if (wanted == "rank_policy") return by(rank_policy, "keel::rank_policy");
  if (wanted == "layer_map") return by(layer_map, "keel::layer_map");
  if (wanted == "spectral_function") return by(spectral_function, "keel::spectral_function");
  if (wanted == "singular_function") return by(singular_function, "keel::singular_function");
  TORCH_CHECK_VALUE(false, "keel::written: expected kind spectral_rule, rank_policy, layer_map, ",
                    "spectral_function or singular_function, got ", wanted);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(keel, m) { m.def("written(str kind, str text) -> str", &written); }

}  // namespace keel::ops
