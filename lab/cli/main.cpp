// keel: trains networks with whitening layers and shows how they did. One file a command.

#include "lab/cli/command_line.h"

int main(int argc, char** argv) { return keel::cli::run_command_line({argv + 1, argv + argc}); }
