#include "lab/cli/command.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/version.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <sstream>

#include "keel/version.h"
#include "lab/processes/processes.h"
#include "lab/report/wording.h"
#include "lab/reproduce/results.h"
#include "lab/require.h"
#include "lab/train/options.h"

namespace keel::cli {
namespace {

using CLI::detail::find_and_replace;
using lab::report::put;

constexpr std::size_t kIndent = 28, kWidth = 100;

/// CLI11 writes "TYPE:VALIDATOR", and "{a,b,c}" for a choice.
struct Words {
  std::string type, valid;
};

Words words(const CLI::Option* option) {
  const std::string text = option->get_type_name();
  const auto colon = text.find(':');
  Words result{text.substr(0, colon), colon == std::string::npos ? "" : text.substr(colon + 1)};
  if (result.valid == "DIR" || result.valid == "FILE") result.valid.clear();
  if (result.valid.size() > 1 && result.valid.front() == '{')
    result.valid = find_and_replace(result.valid.substr(1, result.valid.size() - 2), ",", ", ");
  static const std::string plain[][2] = {
      {"TEXT", "NAME"}, {"INT", "N"}, {"UINT", "N"}, {"FLOAT", "X"}};
  for (const auto& [theirs, ours] : plain)
    if (result.type == theirs) result.type = ours;
  return result;
}

std::string wrapped(const std::string& text) {
  std::string out, line;
  std::istringstream stream(text);
  for (std::string word; stream >> word;) {
    if (!line.empty() && kIndent + line.size() + 1 + word.size() > kWidth) {
      out += line + '\n' + std::string(kIndent, ' ');
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  return out + line;
}

/// The help layout: name and type on the left; on the right the description, valid values in parentheses and the default
/// in brackets, wrapped.
class Layout : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    const auto [type, valid] = words(option);
    std::string name = find_and_replace(option->get_name(is_positional, true), ",", ", ");
    name = find_and_replace(name, "{false}", "");  // which CLI11 adds to a flag's --no- form
    const bool flag = option->get_items_expected_max() == 0;
    if (!flag && !is_positional) name += " " + type;
    std::string text = option->get_description();
    std::string standard = option->get_default_str();
    if (const auto at = text.rfind(" [");
        standard.empty() && at != text.npos && text.back() == ']') {
      standard = text.substr(at + 2, text.size() - at - 3);  // the description ends with it
      text.resize(at);
    }
    if (!flag && !valid.empty()) text += fmt::format(" ({})", valid);
    if (!standard.empty()) text += fmt::format(" [{}]", standard);
    std::string left = "  " + name;
    if (left.size() + 2 > kIndent)
      left += '\n' + std::string(kIndent, ' ');
    else
      left.resize(kIndent, ' ');
    return left + wrapped(text) + '\n';
  }
};

}  // namespace

const std::vector<Command>& commands() {
  static const std::vector<Command> all = {
      {"train", "train a network, or continue a run", train},
      {"eval", "test error of a checkpoint on a data set", evaluate},
      {"report", "one HTML page and a table from run folders", report},
      {"inspect", "spectrum of a layer or a matrix, and each gradient rule's error on it", inspect},
      {"reproduce", "run a table or figure of the paper, and compare with its figures", reproduce},
      {"data", "summarise or pack a data set", data},
  };
  return all;
}

std::pair<int, std::string> explained(const std::exception& error) {
  if (dynamic_cast<const UsageError*>(&error) != nullptr ||
      dynamic_cast<const lab::OtherOptions*>(&error) != nullptr)
    return {kUsage, error.what()};
  if (dynamic_cast<const lab::ProcessError*>(&error) != nullptr) return {kProcesses, error.what()};
  if (dynamic_cast<const Error*>(&error) != nullptr) return {kInput, error.what()};
  // A path that is too long, or leads in a circle.
  if (const auto* files = dynamic_cast<const std::filesystem::filesystem_error*>(&error))
    return {kInput,
            fmt::format("cannot use {}: {}", files->path1().string(), files->code().message())};
  // Not the user's mistake.
  if (const auto* torchs = dynamic_cast<const c10::Error*>(&error))
    return {kUnexpected, torchs->what_without_backtrace()};
  return {kUnexpected, error.what()};
}

std::string error_line(const std::string& message, const std::string& command) {
  return (command.empty() ? "keel: " : "keel " + command + ": ") + message + "\n";
}

std::string version() {
  const std::string cuda = lab::reproduce::cuda_version();
  return fmt::format("keel {}, LibTorch {}, {}", KEEL_VERSION, TORCH_VERSION,
                     cuda.empty() ? "no CUDA" : "CUDA " + cuda);
}

std::unique_ptr<CLI::App> make_app(const std::string& name, const std::string& description) {
  auto app = std::make_unique<CLI::App>(description, "keel " + name);
  app->formatter(std::make_shared<Layout>());
  app->set_help_flag("-h,--help", "this text");
  app->failure_message([name](const CLI::App*, const CLI::Error& error) {
    return lab::report::harmless(error_line(error.what(), name)) +
           "Run with --help for more information.\n";
  });
  return app;
}

std::optional<int> parse(CLI::App& app, const std::vector<std::string>& arguments) {
  std::vector<std::string> reversed(arguments.rbegin(),
                                    arguments.rend());  // CLI11 expects this order
  for (std::string& word : reversed) {
    if (!word.starts_with("--")) continue;
    std::replace(word.begin(), word.begin() + std::ptrdiff_t(std::min(word.find('='), word.size())),
                 '_', '-');
  }
  try {
    app.parse(std::move(reversed));
    for (const CLI::Option* option : app.get_options()) {
      const auto& given = option->results();
      const bool path = option->get_type_name() == "FOLDER" || option->get_type_name() == "FILE" ||
                        option->get_type_name() == "PATH" || option->get_positional();
      if (path && std::ranges::find(given, "") != given.end())
        throw UsageError(fmt::format("expected a name as {}, got ''", option->get_name()));
      if (option->get_multi_option_policy() == CLI::MultiOptionPolicy::TakeLast &&
          given.size() > 1 && option->get_items_expected_max() == 1)
        put(stderr, "keel: {} is given {} times; {} is used\n", option->get_name(), given.size(),
            given.back());
    }
    return {};
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kDone : kUsage;
  }
}

std::string for_shell(const std::string& word) {
  const std::string plain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./+:@%,";
  if (!word.empty() && word.find_first_not_of(plain) == word.npos) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

lab::Checkpoint open_checkpoint(const std::string& where) {
  require(std::filesystem::exists(where), "expected a run folder or a checkpoint, {} is not there",
          where);
  const auto ending = std::filesystem::path(where).extension();
  require(
      std::filesystem::is_directory(where) || ending == ".safetensors" || ending == ".json",
      "expected a run folder, or a checkpoint's file that ends in .safetensors or .json, got {}",
      where);
  auto found =
      lab::newest_checkpoint(where, [](const std::string& text) { put(stderr, "{}\n", text); });
  require(found.has_value(), "expected a checkpoint in {}, got none", where);
  return std::move(*found);
}

namespace {

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

int fail(int code, const std::string& what, const std::string& command = "") {
  put(stderr, error_line(what, command));
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
  return fail(kUsage, fmt::format("unknown command '{}'\n{}", words[0], help_of_all()));
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
    code = fail(number, text, words[0]);  // only a command throws
  }
  // Output that could not be written is an error.
  if ((std::fflush(stdout) != 0 || std::ferror(stdout)) && code == kDone)
    code = fail(kUnexpected, "standard output cannot be written to (disk full?)");
  return code;
}

}  // namespace keel::cli
