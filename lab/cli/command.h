#pragma once

#include <CLI/CLI.hpp>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "keel/error.h"
#include "lab/cli/exit_code.h"

namespace keel::cli {

/// Wrong options; ends with kUsage.
class UsageError : public Error {
 public:
  using Error::Error;
};

/// What `call` returns; an error in it is one of the command line.
template <typename Call>
auto of_the_command_line(const Call& call) {
  try {
    return call();
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

/// One word after `keel`: its options are declared and parsed by `run`, which returns the exit code.
struct Command {
  const char* name;
  const char* description;
  int (*run)(const std::vector<std::string>& arguments);
};

/// In the order of the help.
const std::vector<Command>& commands();

int train(const std::vector<std::string>& arguments);
int evaluate(const std::vector<std::string>& arguments);
int inspect(const std::vector<std::string>& arguments);
int fold(const std::vector<std::string>& arguments);
int bench(const std::vector<std::string>& arguments);
int report(const std::vector<std::string>& arguments);
int reproduce(const std::vector<std::string>& arguments);
int data(const std::vector<std::string>& arguments);

/// The exit code and the words for what a command threw.
std::pair<int, std::string> explained(const std::exception& error);

/// One line that says which program speaks: errors of the library begin with its name already.
std::string spoken(const std::string& words);

/// "keel 0.1.0, LibTorch 1.13.1, no CUDA".
std::string version();

/// An app for `keel NAME` with the house's help layout.
std::unique_ptr<CLI::App> make_app(const std::string& name, const std::string& description);
/// Underscores in option names are taken for dashes. The exit code where the command ends here: help was asked for, or
/// the words are wrong, and that has been said.
std::optional<int> parse(CLI::App& app, const std::vector<std::string>& arguments);

}  // namespace keel::cli
