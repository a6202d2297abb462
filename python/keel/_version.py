"""The version, which lives in include/keel/version.h and nowhere else."""

from __future__ import annotations

import re
from pathlib import Path


def read() -> str:
    header = Path(__file__).resolve().parents[2] / "include" / "keel" / "version.h"
    if header.is_file():
        found = re.search(r'#define KEEL_VERSION "(.+)"', header.read_text())
        if found:
            return found.group(1)
    from importlib.metadata import version

    return version("keel").partition("+")[0]  # without the torch it is for
