#include "lab/reproduce/page.h"

#include <fmt/format.h>

#include <algorithm>

#include "lab/report/table.h"
#include "lab/report/wording.h"
#include "lab/reproduce/measure.h"
#include "lab/require.h"
#include "lab/storage/files.h"

namespace keel::lab::reproduce {
namespace {

namespace fs = std::filesystem;

std::string trimmed(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

std::string value_text(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::string options_text(const Json& options) {
  std::string text;
  for (const auto& [name, value] : options.items())
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, value_text(value));
  return text;
}

std::string origin_text(const Origin& s) {
  const std::string where =
      s.device == "cpu" ? fmt::format("{} ({} cores)", s.processor, s.cores) : s.device;
  std::string command = s.command;  // in code, where only a backtick means anything
  std::ranges::replace(command, '`', '\'');
  std::ranges::replace(command, '\n', ' ');
  return fmt::format("- {}: {}; LibTorch {}, CUDA {}, keel {} at {}; `{}`\n",
                     report::in_markdown(s.date), report::in_markdown(where),
                     report::in_markdown(s.libtorch), report::in_markdown(s.cuda),
                     report::in_markdown(s.keel), report::in_markdown(s.tree), command);
}

std::string provenance(const Results& results) {
  std::string text = "## How our results were made\n\n";
  if (results.data) text += fmt::format("Data: {}.\n", report::in_markdown(results.data->text()));
  if (!results.options.empty())
    text +=
        fmt::format("Options in common: {}.\n", report::in_markdown(options_text(results.options)));
  if (results.data || !results.options.empty()) text += "\n";
  for (const Origin& origin : results.origins) text += origin_text(origin);
  return text;
}

std::string state_text(const Recipe& recipe, const Results& results) {
  if (results.empty()) return "not run";
  if (!recipe.trains()) return "done";
  std::int64_t cells = 0, done = 0, trials = 0;
  for (const Cell& cell : recipe.cells) {
    const auto found = std::int64_t(results.of(cell).size());
    ++cells;
    done += found > 0;
    if (cell.same_as.empty()) trials += found;
  }
  return fmt::format("{} of {}, {}", done, counted(cells, "cell"), counted(trials, "trial"));
}

std::string page_head(const Recipe& recipe) {
  return fmt::format(
      "{} {} --page` from recipe.toml and results.json: change those. -->\n# {}\n\n{}\n\n",
      kPageMark, recipe.name, recipe.title, trimmed(recipe.about));
}

std::string page_foot(const Recipe& recipe, const Results& results) {
  std::string text;
  if (!recipe.notes.empty()) text += "## Notes\n\n" + trimmed(recipe.notes) + "\n\n";
  if (results.empty())
    text += fmt::format("**Not run yet.** `keel reproduce {}` runs it.\n", recipe.name);
  else
    text += provenance(results);
  return text;
}

}  // namespace

Page page(const Recipe& recipe, const Results& results) {
  const auto body = recipe.kind == "training" ? training_body
                    : recipe.kind == "curves" ? curves_body
                                              : kind_of(recipe).body;
  const bool has_paper =
      recipe.settings.contains("paper");  // figures to show before there are ours
  Page page = recipe.trains() || has_paper || !results.empty() ? body(recipe, results) : Page();
  page.markdown = page_head(recipe) + page.markdown + page_foot(recipe, results);
  return page;
}

std::string index_page(const std::vector<Recipe>& recipes, const std::vector<Results>& results) {
  std::string text =
      "<!-- Written by `keel reproduce --page`: change the recipes. -->\n"
      "# Experiments\n\n"
      "The tables and figures of Wang, Dang, Hu, Fua and Salzmann, \"Backpropagation-Friendly "
      "Eigendecomposition\" (NeurIPS 2019), as recipes that run with one command, `keel reproduce "
      "NAME`, and measurements of our own. Each folder holds the recipe, our results and a page "
      "made of both, with the paper's figures beside ours. [How to](../../docs/reproduce.md); "
      "[what we learned](../../docs/what_we_learned.md).\n\n";
  report::Table table({"experiment", "what", "run so far", "data", "cost"}, 5);
  for (std::size_t i = 0; i < recipes.size(); ++i) {
    table.add({fmt::format("[{0}]({0}/README.md)", recipes[i].name), recipes[i].title,
               state_text(recipes[i], results[i]),
               results[i].data ? report::in_markdown(results[i].data->name) : "",
               cost(recipes[i], recipes[i].default_schedule)});
  }
  text += table.markdown();
  text += fmt::format(
      "\nCosts assume {} ms a step (ResNet18, batch 128, bfloat16, a CUDA graph, on an H200; {} "
      "steps an epoch) unless a recipe says otherwise.\n",
      kStepMilliseconds, kStepsPerEpoch);
  return text;
}

fs::path results_file(const Recipe& recipe, const fs::path& folder) {
  return recipe.results_of.empty() ? folder / "results.json"
                                   : fs::absolute(folder).lexically_normal().parent_path() /
                                         recipe.results_of / "results.json";
}

void write_page(const fs::path& folder, const Page& page) {
  fs::create_directories(folder);
  check_marked(folder / "README.md", kPageMark);
  write_file_atomically(folder / "README.md", page.markdown);
  for (const auto& [name, svg] : page.pictures) write_file_atomically(folder / name, svg);
}

}  // namespace keel::lab::reproduce
