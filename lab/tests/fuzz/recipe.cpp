#include "lab/reproduce/recipe.h"

#include "lab/tests/fuzz/fuzz.h"
#include "support/files.h"

namespace keel::fuzz::recipe {

void attack(const std::string& bytes) {
  const auto file = folder() / kHostile / "recipe.toml";
  testing::write_bytes(file, bytes);
  namespace reproduce = lab::reproduce;
  const reproduce::Recipe recipe = reproduce::read_recipe(file);
  reproduce::cost(recipe, recipe.default_schedule);
  for (const reproduce::Cell& cell : recipe.cells)
    reproduce::cell_options(recipe, cell, recipe.default_schedule, reproduce::Json::object());
}

const Registration registration({"recipe", attack, {}});

}  // namespace keel::fuzz::recipe
