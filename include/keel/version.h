#pragma once

// The version's single definition: CMake, the command line and Python read it from here.
#define KEEL_VERSION_MAJOR 0
#define KEEL_VERSION_MINOR 1
#define KEEL_VERSION_PATCH 0
#define KEEL_VERSION "0.1.0"
