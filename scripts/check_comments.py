#!/usr/bin/env python3
"""Finds comments whose formulas were torn apart, as by a tool that took the bars of |x| for breaks: a line with nothing
but a symbol, a line that begins with what can only follow a symbol, a bar without its partner.

    scripts/check_comments.py FILE...        C++, CUDA and Python
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Iterator, List, Tuple

MARK = {".py": r"#"}
SENSE = re.compile(r"[a-z]{3}|[A-Z]{3}|[-*=~]{3}|.\.$")  # a word or a name, a rule, the end of a sentence
FOLLOWS = re.compile(r"[.,;](\s|$)|\^|_[A-Z]\b|[)/]\s")


def comments(path: Path) -> Iterator[List[Tuple[int, str]]]:
    """Comments on lines of their own, with the number and the text of each line."""
    line_of_comment = re.compile(rf"\s*(?:{MARK.get(path.suffix, '///?!?')})(?!!)(.*)")
    block: List[Tuple[int, str]] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines() + [""], 1):
        found = line_of_comment.fullmatch(line)
        if found:
            block.append((number, found.group(1).strip()))
        elif block:
            yield block
            block = []


def defects(block: List[Tuple[int, str]]) -> Iterator[Tuple[int, str]]:
    for number, text in block:
        if not text:
            continue
        if FOLLOWS.match(text):
            yield number, f'"{text}" begins with what follows a symbol'
        elif len(block) > 1 and " " not in text and not SENSE.search(text):
            yield number, f'a lone symbol, "{text}"'
    bars = sum(text.replace("||", "").count("|") for _, text in block)
    if bars % 2 == 1:
        yield next(number for number, text in block if "|" in text), "a | without its partner"


def main() -> int:
    found = 0
    for path in map(Path, sys.argv[1:]):
        for block in comments(path):
            for number, defect in defects(block):
                print(f"{path}:{number}: {defect}", file=sys.stderr)
                found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
