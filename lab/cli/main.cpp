// keel-lab: trains networks with whitening layers and reports the results. Each command has its own file. front.cpp is
// the program that a user starts.

#include "lab/cli/command_line.h"

int main(int argc, char** argv) { return keel::cli::run_command_line({argv + 1, argv + argc}); }
