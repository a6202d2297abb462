#include "lab/cli/command_line.h"

#include <fmt/format.h>

#include <csignal>
#include <cstdio>

#include "lab/cli/command.h"
#include "lab/report/put.h"

namespace keel::cli {
namespace {

using lab::report::put;

std::string help_of_all() {
  std::string text =
      "Usage: keel COMMAND [OPTIONS]\n\n"
      "Trains networks with whitening and denoising layers whose gradients do not blow up.\n\n"
      "Commands:\n";
  for (const Command& command : commands())
    text += fmt::format("  {:<9} {}\n", command.name, command.description);
  return text +
         "\n  keel COMMAND --help   the options of a command\n"
         "  keel --version        the versions of keel, LibTorch and CUDA\n";
}

int complain(int code, const std::string& what, const std::string& command = "") {
  put(stderr, spoken(what, command));
  return code;
}

int run_command(const std::vector<std::string>& words) {
  if (words.empty()) {
    put(stderr, help_of_all());
    return kUsage;
  }
  if (words[0] == "--version" || words[0] == "-V") {
    fmt::print("{}\n", version());
    return kDone;
  }
  if (words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
    fmt::print("{}", help_of_all());
    return kDone;
  }
  for (const Command& command : commands())
    if (words[0] == command.name) return command.run({words.begin() + 1, words.end()});
  return complain(kUsage, fmt::format("unknown command '{}'\n{}", words[0], help_of_all()));
}

}  // namespace

int run_command_line(const std::vector<std::string>& words) {
  // A file larger than `ulimit -f` allows is then an error of write(), which names the file. By default the signal would
  // end the program without a word.
  std::signal(SIGXFSZ, SIG_IGN);
  int code = kDone;
  try {
    code = run_command(words);
  } catch (const std::exception& error) {
    const auto [number, text] = explained(error);
    code = complain(number, text, words[0]);  // only a command throws
  }
  // Output that could not be written is an error.
  if ((std::fflush(stdout) != 0 || std::ferror(stdout)) && code == kDone)
    code = complain(kUnexpected, "standard output cannot be written to (disk full?)");
  return code;
}

}  // namespace keel::cli
