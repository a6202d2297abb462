#pragma once

#include <CLI/CLI.hpp>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "keel/error.h"
#include "lab/cli/command_line.h"
#include "lab/train/checkpoint.h"

namespace keel::cli {

/// Wrong options. The program ends with kUsage.
class UsageError : public Error {
 public:
  using Error::Error;
};

/// Calls `call` and converts its errors to UsageError.
template <typename Call>
auto of_the_command_line(const Call& call) {
  try {
    return call();
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

/// A subcommand of `keel`. `run` declares and parses its options and returns the exit code.
struct Command {
  const char* name;
  const char* description;
  int (*run)(const std::vector<std::string>& arguments);
};

/// In the order of the help text.
const std::vector<Command>& commands();

int train(const std::vector<std::string>& arguments);
int evaluate(const std::vector<std::string>& arguments);
int inspect(const std::vector<std::string>& arguments);
int report(const std::vector<std::string>& arguments);
int reproduce(const std::vector<std::string>& arguments);
int data(const std::vector<std::string>& arguments);

/// The exit code and the message for an exception that a command threw.
std::pair<int, std::string> explained(const std::exception& error);

/// "keel COMMAND: MESSAGE", with a line end.
std::string error_line(const std::string& message, const std::string& command = "");

/// The word as a shell reads it, with quotes if it needs them, for commands that a reader may copy.
std::string for_shell(const std::string& word);

/// "keel 0.1.0, LibTorch 1.13.1, no CUDA".
std::string version();

/// The newest good checkpoint of a run folder, or the one named. Reports damaged ones on stderr. Throws keel::Error if
/// there is no good one.
lab::Checkpoint open_checkpoint(const std::string& where);

/// An app for `keel NAME`, with our layout of its help.
std::unique_ptr<CLI::App> make_app(const std::string& name, const std::string& description);
/// Parses the arguments. Underscores in option names count as dashes. Returns an exit code if the command ends here,
/// because help was printed or a usage error was reported.
std::optional<int> parse(CLI::App& app, const std::vector<std::string>& arguments);

}  // namespace keel::cli
