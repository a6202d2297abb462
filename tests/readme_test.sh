#!/usr/bin/env bash
# The first C++ block of README.md is examples/readme.cpp, letter for letter, and that of docs/core.md is examples/core.cpp:
# the build compiles the files and the tests run them, so the pages cannot rot. --fix copies the files into the pages.
#     tests/readme_test.sh <root> [--fix]
set -euo pipefail
root=$1
start='^```cpp$' end='^```$'

check() {  # check PAGE FILE [--fix]
  local page=$root/$1 file=$root/$2 block
  if [ "${3:-}" = --fix ]; then
    awk -v file="$file" -v start="$start" -v end="$end" '
      !done && $0 ~ start {print; while ((getline line < file) > 0) print line; inside = 1; next}
      inside && $0 ~ end {inside = 0; done = 1}
      !inside' "$page" >"$page.new"
    mv "$page.new" "$page"
  fi
  block=$(awk -v start="$start" -v end="$end" '$0 ~ start {inside = 1; next} inside && $0 ~ end {exit} inside' "$page")
  [ -n "$block" ] || { echo "$1 has no \`\`\`cpp block" >&2; exit 1; }
  if ! diff -u --label "$2" --label "$1" "$file" <(printf '%s\n' "$block"); then
    echo "$1: the C++ example is not $2 (tests/readme_test.sh . --fix)" >&2
    exit 1
  fi
}

check README.md examples/readme.cpp "${2:-}"
check docs/core.md examples/core.cpp "${2:-}"
