// What the core makes of a text, for Python: checked, and with every field.

#include "check.h"
#include "keel/torch/nn/whitening.h"

namespace keel::ops {
namespace {

std::string written(StringView kind, StringView given) {
  const std::string wanted = text(kind);
  const auto by = [&](auto reader, const char* name) {
    using keel::to_string, nn::to_string;
    return to_string(parsed(reader, name, given));
  };
  if (wanted == "layer_rule") return by(nn::layer_rule, "keel::layer_rule");
  if (wanted == "rank_policy") return by(rank_policy, "keel::rank_policy");
  if (wanted == "subspace_map") return by(subspace_map, "keel::subspace_map");
  if (wanted == "spectral_function") return by(spectral_function, "keel::spectral_function");
  TORCH_CHECK_VALUE(false, "keel::written: expected kind layer_rule, rank_policy, subspace_map or ",
                    "spectral_function, got ", wanted);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(keel, m) { m.def("written(str kind, str text) -> str", &written); }

}  // namespace keel::ops
