#!/usr/bin/env bash
# The first C++ block of README.md is examples/readme.cpp, letter for letter: the build compiles
# the file and the tests run it, so the README cannot rot. --fix copies the file into the README.
#     tests/readme_test.sh <root> [--fix]
set -euo pipefail
root=$1
start='^```cpp$' end='^```$'
if [ "${2:-}" = --fix ]; then
  awk -v file="$root/examples/readme.cpp" -v start="$start" -v end="$end" '
    !done && $0 ~ start {print; while ((getline line < file) > 0) print line; inside = 1; next}
    inside && $0 ~ end {inside = 0; done = 1}
    !inside' "$root/README.md" >"$root/README.md.new"
  mv "$root/README.md.new" "$root/README.md"
fi
block=$(awk -v start="$start" -v end="$end" '$0 ~ start {inside = 1; next} inside && $0 ~ end {exit} inside' "$root/README.md")
[ -n "$block" ] || { echo 'README.md has no ```cpp block' >&2; exit 1; }
if ! diff -u --label examples/readme.cpp --label README.md \
    "$root/examples/readme.cpp" <(printf '%s\n' "$block"); then
  echo 'README.md: the C++ example is not examples/readme.cpp (tests/readme_test.sh . --fix)' >&2
  exit 1
fi
