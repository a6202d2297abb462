#!/usr/bin/env python3
"""What Doxygen reads of a header. What it declares is one of Doxygen's groups, whose description is the header's
opening comment and the contract that stands before a backend's namespace. How a rule is written as text is left out.

    docs/site/header_filter.py HEADER
"""

import re
import sys
from pathlib import Path

OPENING = re.compile(r"#pragma once\n\n((?://(?!/).*\n)+)")
BACKENDS = ["reference", "cpu", "cuda"]
CONTRACT = re.compile(r"((?:^ *///.*\n)+)(?=namespace (?:reference|cpu|cuda) \{)", re.MULTILINE)
TEXT_FORM = re.compile(
    r"^ *static constexpr const char\* kName.*\n"
    r"|^ *static void fields\(.*?(?:\{.*\}\n|\{\n(?:.*\n)*?  \}\n)",
    re.MULTILINE,
)


def words(comment):
    return re.sub(r"^ *//+ ?", "", comment, flags=re.MULTILINE)


def group(header):
    """include/keel/eigh.h -> keel_eigh"""
    return re.sub(r"\W", "_", header.with_suffix("").as_posix().rpartition("include/")[2])


def backends_of(text):
    return [name for name in BACKENDS if f"\nnamespace {name} {{\n" in text]


def grouped(name, text):
    """What is declared as members of the group, or of the backend's; without the namespaces themselves, which belong to
    every header."""
    inside, lines = [], []

    def mark():
        if inside:
            lines.extend(["", f"/// \\addtogroup {name}{inside[-1]}", "/// @{", ""])

    for line in text.splitlines():
        opens, closes = re.match(r"namespace ([\w:]+) \{$", line), re.match(r"\}  // namespace", line)
        if (opens or closes) and inside:
            lines.extend(["", "/// @}", ""])
        lines.append(line)
        if opens:
            inside.append(f"_{opens[1]}" if opens[1] in BACKENDS else "")
        elif closes:
            inside.pop()
        if opens or closes:
            mark()
    return "\n".join(lines)


def for_doxygen(header):
    text = header.read_text(encoding="utf-8")
    found = [words(comment) for comment in OPENING.findall(text)[:1] + CONTRACT.findall(text)]
    description = "\n".join(f"/// {line}".rstrip() for line in "\n".join(found).splitlines())
    backends = "".join(f"/// \\defgroup {group(header)}_{name} {name}\n\n" for name in backends_of(text))
    text = grouped(group(header), TEXT_FORM.sub("", CONTRACT.sub("", OPENING.sub("", text, count=1))))
    return f"{backends}/// \\defgroup {group(header)} {header.name}\n///\n{description}\n\n{text}\n"


if __name__ == "__main__":
    sys.stdout.write(for_doxygen(Path(sys.argv[1])))
