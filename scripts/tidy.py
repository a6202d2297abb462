#!/usr/bin/env python3
"""Runs clang-tidy, with the checks of .clang-tidy and clang's own warnings, over the core.

The files of a folder are read as one, so that their headers are read once: seconds instead of a minute. So names
inside anonymous namespaces must differ within a folder. --all reads every C++ file of the core, the adapter and the lab
by itself. That takes half a minute a file that reads LibTorch's headers, and it leaves out, with a
count, files whose headers clang cannot read: clang 14 fails on many of LibTorch 1.13's as C++20.

    scripts/tidy.py [--all]
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import List, NamedTuple, Optional

ROOT = Path(__file__).resolve().parents[1]
FLAGS = ["-std=c++20", "-Wall", "-Wextra", f"-I{ROOT}/include", f"-I{ROOT}/core", f"-I{ROOT}/tests"]
# The options with which core/CMakeLists.txt compiles for the baseline processor.
KERNEL_FLAGS = ["-DKEEL_ISA=baseline", "-DKEEL_VECTOR_BYTES=16", "-Wno-psabi"]
CORE = ["core/cpu", "core/reference", "core"]  # the longest first
REST = ["libtorch", "lab"]
# Need CUDA, gcc's instrumentation, or what only some builds of LibTorch have.
NOT_ALONE = re.compile(r"/cuda/|/gpu/|/fuzz/|lab/processes/c10d")


class Task(NamedTuple):
    name: str
    file: Path
    flags: List[str]
    may_be_unreadable: bool = False


def is_kernel(file: Path) -> bool:
    return file.name.startswith("kernels")


def by_folder(scratch: Path) -> List[Task]:
    tasks = []
    for folder in CORE:
        files = sorted((ROOT / folder).glob("*.cpp"))
        together = scratch / (folder.replace("/", "_") + ".cpp")
        together.write_text("".join(f'#include "{f}"\n' for f in files if not is_kernel(f)))
        tasks.append(Task(folder, together, FLAGS))
        tasks += [Task(str(f.relative_to(ROOT)), f, FLAGS + KERNEL_FLAGS) for f in files if is_kernel(f)]
    return sorted(tasks, key=lambda task: is_kernel(task.file))  # these are short


def libtorch_flags() -> Optional[List[str]]:
    """Where the build folder found LibTorch and the lab's libraries."""
    database = ROOT / "build" / "compile_commands.json"
    if not database.is_file():
        return None
    words: List[str] = []
    for entry in json.loads(database.read_text()):
        words += shlex.split(entry["command"])
    places = {f"-I{word}" for last, word in zip(words, words[1:]) if last == "-isystem"}
    folders = [f"-I{ROOT}", f"-I{ROOT}/libtorch", f"-I{ROOT}/libtorch/include", f"-I{ROOT}/build/core"]
    gcc = subprocess.run(["c++", "-print-file-name=include"], capture_output=True, text=True).stdout.strip()
    system = [place.replace("-I", "-isystem", 1) for place in sorted(places)]
    # OpenMP's header is gcc's; clang's own need not be installed.
    return folders + system + ["-D_OPENMP=201511", f"-idirafter{gcc}", "-Wno-unknown-pragmas"]


def one_by_one() -> List[Task]:
    tasks = []
    for folder in CORE:
        for file in sorted((ROOT / folder).glob("*.cpp")):
            extra = KERNEL_FLAGS if is_kernel(file) else []
            tasks.append(Task(str(file.relative_to(ROOT)), file, FLAGS + extra))
    flags = libtorch_flags()
    if flags is None:
        print("tidy: no build/compile_commands.json, so nothing but the core is read (cmake --preset release)")
        return tasks
    for folder in REST:
        for file in sorted((ROOT / folder).rglob("*.cpp")):
            name = str(file.relative_to(ROOT))
            if not NOT_ALONE.search(f"/{name}"):
                tasks.append(Task(name, file, FLAGS + flags, may_be_unreadable=True))
    return tasks


def run(task: Task) -> Optional[str]:
    """clang-tidy's findings: empty if there are none, None if clang cannot read the file's headers."""
    command = ["clang-tidy", "--quiet", f"--config-file={ROOT}/.clang-tidy", str(task.file), "--", *task.flags]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode == 0:
        return ""
    broken = [line for line in result.stdout.splitlines() if "[clang-diagnostic-error" in line]
    if task.may_be_unreadable and any(not line.startswith(str(ROOT)) for line in broken):
        return None
    return result.stdout.replace(f"{ROOT}/", "") or result.stderr


def main() -> int:
    with tempfile.TemporaryDirectory() as scratch:
        tasks = one_by_one() if "--all" in sys.argv[1:] else by_folder(Path(scratch))
        failed = unread = 0
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for task, found in zip(tasks, pool.map(run, tasks)):
                if found:
                    print(f"tidy: {task.name}\n{found}", file=sys.stderr)
                failed += bool(found)
                unread += found is None
        print(f"tidy: {len(tasks) - unread} parts read, {failed} with findings, {unread} that clang cannot read")
        return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
