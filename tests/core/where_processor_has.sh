#!/usr/bin/env bash
# where_processor_has.sh FLAG COMMAND...: runs the command where the processor has the instruction set; elsewhere it exits with
# 77, which ctest calls skipped.
if ! grep -qw "$1" /proc/cpuinfo; then
  echo "skipped: this processor has no $1, so the tests before this one ran the same kernels"
  exit 77
fi
shift
exec "$@"
