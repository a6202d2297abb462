#!/usr/bin/env python3
"""Checks the Markdown files: every relative link leads to a file and, where it names one, to a heading;
every path of this tree that stands in `code` exists; formulas are written so that GitHub shows them; the README is
short enough to be read.

    scripts/check_docs.py FILE.md...
"""

from __future__ import annotations

import re
import sys
from functools import lru_cache
from pathlib import Path
from typing import Iterator, Set

ROOT = Path(__file__).resolve().parents[1]
MOST_WORDS_OF_README = 600
# Folders whose files may be named in prose. What programs write (build/, runs/) may be missing.
FOLDERS = "bench cli cmake core docs examples experiments include lab libtorch python scripts tests".split()

FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
FORMULA = re.compile(r"(?<![\w$])\$([^$\n]+)\$(?![\w$])")
# GitHub takes these for Markdown before it looks for formulas. In ```math all are fine.
NOT_IN_A_LINE = re.compile(r"\\[^A-Za-z\s]|[^\w\s]_|\*|\|")
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
PATH = re.compile(rf"(?:{'|'.join(FOLDERS)})/[\w./*-]*")


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text(encoding="utf-8"))


@lru_cache(maxsize=None)
def anchors(page: Path) -> Set[str]:
    """The anchor as GitHub makes it: lower case, no punctuation, hyphens for spaces."""
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(prose(page)))
    return {heading.replace(" ", "-") for heading in plain}


def defects(page: Path) -> Iterator[str]:
    text = prose(page)
    for link in LINK.findall(CODE.sub("", text)):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists():
            yield f"the link to {link} leads nowhere"
        elif anchor and anchor not in anchors(target):
            yield f"the link to {link} names no heading of {target.relative_to(ROOT)}"
    for code in CODE.findall(text):
        if PATH.fullmatch(code) and not any(ROOT.glob(code.rstrip("/"))):
            yield f"`{code}` does not exist"
    for formula in FORMULA.findall(CODE.sub("", text)):
        wrong = NOT_IN_A_LINE.search(formula)
        if wrong:
            yield f"the formula ${formula}$ has {wrong[0]}, which GitHub takes for Markdown: use a ```math block"
    if page == ROOT / "README.md":
        words = len(page.read_text(encoding="utf-8").split())
        if words > MOST_WORDS_OF_README:
            yield f"expected at most {MOST_WORDS_OF_README} words, got {words}"


def main() -> int:
    found = 0
    for page in (Path(name).resolve() for name in sys.argv[1:]):
        for defect in defects(page):
            print(f"{page.relative_to(ROOT)}: {defect}", file=sys.stderr)
            found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
