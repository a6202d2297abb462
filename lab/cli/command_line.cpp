#include "lab/cli/command_line.h"

#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <iostream>
#include <sstream>

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

/// What the program `keel` prints without starting this one, as front.cpp includes it.
std::string front_texts() {
  const auto item = [](const std::string& command, const std::string& text) {
    return fmt::format("{{\"{}\", R\"keel({})keel\"}},\n", command, text);
  };
  std::string all = item("", help_of_all()) + item("--version", version() + "\n");
  std::ostringstream said;
  auto* const before = std::cout.rdbuf(said.rdbuf());
  for (const Command& command : commands()) {
    said.str("");
    command.run({"--help"});
    all += item(command.name, said.str());
  }
  std::cout.rdbuf(before);
  return all;
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
    put(stdout, "{}\n", version());
    return kDone;
  }
  if (words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
    put(stdout, "{}", help_of_all());
    return kDone;
  }
  if (words[0] == "--front-texts") {
    put(stdout, front_texts());
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
