// keel: trains networks with whitening layers and reports the results. Each command has its own file.

#include <fcntl.h>

#include "lab/cli/command_line.h"

int main(int argc, char** argv) {
  // For a closed standard stream, /dev/null. Otherwise the next opened file would get its number and receive what is
  // printed.
  for (int number = 0; number <= 2; ++number)
    if (::fcntl(number, F_GETFD) < 0) ::open("/dev/null", O_RDWR);  // gets the lowest free number
  return keel::cli::run_command_line({argv + 1, argv + argc});
}
