// CMake attaches a precompiled header to a target, and a target to a source.
