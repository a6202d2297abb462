#include "keel/spectral.h"

#include <iterator>

#include "keel/error.h"

namespace keel {

namespace {

/// In the order of SpectralFunction::Kind.
constexpr const char* kFunctions[] = {"one", "sqrt", "inv_sqrt", "inv", "log", "exp", "power"};
constexpr std::size_t kCount = std::size(kFunctions);

}  // namespace

std::string to_string(const SpectralFunction& function) {
  const auto kind = std::size_t(function.kind);
  require(kind < kCount, "keel::to_string: expected a SpectralFunction::Kind, got " +
                             term::written(int(function.kind)));
  return term::written(kFunctions[kind], function);
}

SpectralFunction spectral_function(std::string_view text, std::string_view operation) {
  term::Reader reader(operation, text);
  const std::size_t start = reader.place();
  const std::string_view name = reader.word();
  std::size_t kind = 0;
  while (kind < kCount && name != kFunctions[kind]) ++kind;
  if (kind == kCount) reader.fail(start, term::choice({kFunctions, kFunctions + kCount}));
  SpectralFunction function{SpectralFunction::Kind(kind)};
  reader.fields(function);
  reader.end();
  return function;
}

void validate(const RankPolicy& policy) { term::check(policy); }
std::string to_string(const RankPolicy& policy) { return term::written(policy); }
RankPolicy rank_policy(std::string_view text, std::string_view operation) {
  return term::read<RankPolicy>(operation, text);
}

void validate(const SpectralRule& rule) { term::check(rule); }
std::string to_string(const SpectralRule& rule) { return term::written(rule); }
SpectralRule spectral_rule(std::string_view text, std::string_view operation) {
  return term::read<SpectralRule>(operation, text);
}

}  // namespace keel
