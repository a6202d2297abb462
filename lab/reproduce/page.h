#pragma once

// lab/experiments/NAME/README.md: what the recipe and the results say, and nothing else.

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "lab/reproduce/results.h"

namespace keel::lab::reproduce {

struct Page {
  std::string markdown;
  std::map<std::string, std::string> pictures;  ///< SVG by file name
};

/// `results` are those of recipe.results_of where the recipe draws another's trials.
Page page(const Recipe& recipe, const Results& results);

/// lab/experiments/README.md.
std::string index_page(const std::vector<Recipe>& recipes, const std::vector<Results>& results);

/// Of the experiment whose folder this is, or whose trials it draws.
std::filesystem::path results_file(const Recipe& recipe, const std::filesystem::path& folder);

void write_page(const std::filesystem::path& folder, const Page& page);

/// The parts between a page's head (title, text) and foot (notes, provenance), for each kind of recipe.
Page training_body(const Recipe& recipe, const Results& results);
Page curves_body(const Recipe& recipe, const Results& results);

}  // namespace keel::lab::reproduce
