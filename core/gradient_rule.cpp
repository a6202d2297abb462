#include "keel/gradient_rule.h"

namespace keel {

void validate(const GradientRule& rule) { term::check(rule); }

std::string to_string(const GradientRule& rule) { return term::written(rule); }

GradientRule gradient_rule(std::string_view text, std::string_view operation) {
  return term::read<GradientRule>(operation, text);
}

}  // namespace keel
