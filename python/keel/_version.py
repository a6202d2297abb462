"""Reads the version, whose only source is include/keel/version.h."""

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

    return version("keel").partition("+")[0]  # the part after + names the torch it was built for
