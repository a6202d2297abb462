// keel: trains networks with whitening layers and shows how they did. One file a command.

#include <fmt/format.h>
#include <torch/torch.h>

#include <cstdio>

#include "cli/command.h"

namespace {

using namespace keel::cli;

std::string help() {
  std::string text =
      "usage: keel COMMAND [OPTIONS]\n\n"
      "Trains networks with layers that whiten and denoise, whose gradients never blow up.\n\n"
      "Commands:\n";
  for (const Command& command : commands())
    text += fmt::format("  {:<9} {}\n", command.name, command.description);
  return text +
         "\n  keel COMMAND --help   the options of a command\n"
         "  keel --version        of keel, LibTorch and CUDA\n";
}

int complain(int code, const std::string& what) {
  fmt::print(stderr, "keel: {}\n", what);
  return code;
}

int run(const Command& command, const std::vector<std::string>& arguments) {
  try {
    return command.run(arguments);
  } catch (const std::exception& error) {
    const auto [code, words] = explained(error);
    return complain(code, words);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.empty()) {
    fmt::print(stderr, "{}", help());
    return kUsage;
  }
  if (words[0] == "--version" || words[0] == "-V") {
    fmt::print("{}\n", version());
    return kDone;
  }
  if (words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
    fmt::print("{}", help());
    return kDone;
  }
  for (const Command& command : commands())
    if (words[0] == command.name) return run(command, {words.begin() + 1, words.end()});
  return complain(kUsage, fmt::format("no command is called '{}'\n{}", words[0], help()));
}
