// The program `keel`. It prints help and version itself, and becomes keel-lab, the program with LibTorch, for all else:
// loading LibTorch takes a hundred times as long as this program.

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string_view>

namespace {

struct Text {
  std::string_view command, text;
};
constexpr Text kTexts[] = {
#include "front_texts.inc"  // by keel-lab --front-texts
};

/// What the command line asks for, if it is a text.
const Text* text_for(int count, char** words) {
  const auto asks_for_help = [](std::string_view word) { return word == "--help" || word == "-h"; };
  std::string_view command = count > 1 ? words[1] : "none";
  if (count == 2 && (asks_for_help(command) || command == "help"))
    command = "";
  else if (count == 2 && (command == "-V" || command == "--version"))
    command = "--version";
  else if (count != 3 || !asks_for_help(words[2]))
    return nullptr;
  for (const Text& known : kTexts)
    if (known.command == command) return &known;
  return nullptr;
}

int print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0)
    return 0;
  std::fputs("keel: standard output cannot be written to (disk full?)\n", stderr);
  return 1;
}

/// Opens /dev/null for a closed standard stream. Otherwise the next opened file would get its number and receive what
/// is printed.
void open_standard_files() {
  for (int number = 0; number <= 2; ++number)
    if (::fcntl(number, F_GETFD) < 0) ::open("/dev/null", O_RDWR);  // gets the lowest free number
}

}  // namespace

int main(int count, char** words) {
  open_standard_files();
  if (const Text* known = text_for(count, words)) return print(known->text);
  std::error_code unknown;
  const auto here = std::filesystem::read_symlink("/proc/self/exe", unknown).parent_path();
  const auto lab = (here / KEEL_LAB_PROGRAM).lexically_normal();
  ::execv(lab.c_str(), words);
  std::fprintf(stderr, "keel: cannot start %s: %s\n", lab.c_str(), std::strerror(errno));
  return 1;
}
