#include "lab/processes/place.h"

#include <cstdlib>

#include "lab/number.h"
#include "lab/require.h"

namespace keel::lab {
namespace {

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == 0) return std::nullopt;
  return value;
}

std::int64_t number(const char* name, std::int64_t least, std::int64_t most) {
  const auto text = variable(name);
  require(text.has_value(),
          "keel::lab::place: expected the variable {} beside RANK and WORLD_SIZE, got "
          "none",
          name);
  const auto value = number_in<std::int64_t>(*text);
  require(value && *value >= least && *value <= most,
          "keel::lab::place: expected {} from {} to {}, got '{}'", name, least, most, *text);
  return *value;
}

}  // namespace

std::optional<Place> place_from_environment() {
  if (!variable("RANK") && !variable("WORLD_SIZE")) return std::nullopt;
  Place place;
  place.size = number("WORLD_SIZE", 1, 1 << 20);
  place.process = number("RANK", 0, place.size - 1);
  if (variable("LOCAL_RANK")) place.local_rank = number("LOCAL_RANK", 0, place.process);
  if (place.size > 1 || variable("MASTER_PORT"))
    place.port = int(number("MASTER_PORT", place.size > 1 ? 1 : 0, 65535));
  const auto address = variable("MASTER_ADDR");
  require(
      place.size == 1 || address.has_value(),
      "keel::lab::place: expected the variable MASTER_ADDR beside RANK and WORLD_SIZE, got none");
  place.address = address.value_or(place.address);
  place.store_is_kept = variable("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True";
  place.attempt = variable("TORCHELASTIC_RESTART_COUNT").value_or("0");
  return place;
}

}  // namespace keel::lab
