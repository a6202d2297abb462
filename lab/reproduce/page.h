#pragma once

// Writes lab/experiments/NAME/README.md, from the recipe and the results alone.

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "lab/reproduce/results.h"

namespace keel::lab::reproduce {

/// How every page begins.
inline constexpr const char* kPageMark = "<!-- Written by `keel reproduce";

struct Page {
  std::string markdown;
  std::map<std::string, std::string> pictures;  ///< SVG by file name
};

/// If the recipe draws another experiment's trials (recipe.results_of), `results` are that experiment's.
Page page(const Recipe& recipe, const Results& results);

/// lab/experiments/README.md.
std::string index_page(const std::vector<Recipe>& recipes, const std::vector<Results>& results);

/// The results file of this experiment, or of the one whose trials it draws.
std::filesystem::path results_file(const Recipe& recipe, const std::filesystem::path& folder);

void write_page(const std::filesystem::path& folder, const Page& page);

/// The part between a page's head (title, text) and foot (notes, provenance), for each kind of recipe.
Page training_body(const Recipe& recipe, const Results& results);
Page curves_body(const Recipe& recipe, const Results& results);

}  // namespace keel::lab::reproduce
