"""What keel composes with: rows (operators and layers), columns (what torch can do with a function or a model), and for
each pair of them a check against torch.linalg, or the error that says what is missing.

test_composition.py runs every cell. The page of the documentation is made of the same cells:

    KEEL_LIBRARY=build/lib/libkeel_torch.so python3 tests/python/composition.py --page docs/composition.md --jobs 4
"""

import argparse
import json
import re
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import torch

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))

from composition_columns import COLUMNS, NOTES, REFUSALS, Missing, func  # noqa: E402, F401
from composition_rows import DEVICE, ROWS  # noqa: E402


class Cell(NamedTuple):
    state: str  # "yes", "error" (as said), "missing" (here), or "wrong"
    why: str = ""


def cell(row, title):
    refusal = REFUSALS.get(title)
    refused = refusal is not None and refusal.rows(row)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            COLUMNS[title](row)
    except Missing as error:
        return Cell("missing", str(error))
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        if refused and re.search(refusal.message, text):
            line = next(line for line in text.splitlines() if re.search(refusal.message, line))
            return Cell("error", line.strip())
        return Cell("wrong", text)
    return Cell("wrong", "expected an error, and it works") if refused else Cell("yes")


# The page.

HEAD = """# What keel composes with

Each row is something that torch does with a function or a model. `tests/python/composition.py --page` writes this
page. It runs every cell and compares the result with the same computation in torch's own operators
(`torch.linalg.eigh` where eigenvalues are apart). *yes* means that they agree. *error* means that keel does not
support it and raises an error; it never returns wrong numbers. A cell is empty if this version of torch, or the
machine, does not have the feature. With torch 2.11 AOTInductor crashed while loading models made of torch's own
operators, so its cells are empty there. A function that a section does not name was added after that section was
measured; so was what torch 2.11 has for DTensors, which is now as with torch 2.6.

Rows that begin with `complex_` are functions of complex matrices. Functions are at full rank, and `projector` keeps 2
of 4 eigenvalues. `ZcaWhitening` has `rank=keel.FullRank()`. With its default, which may drop eigenvalues, its second
derivatives are errors, as `PcaDenoising`'s are. Layers use the batch's statistics. `func` is `torch.func`, or
`functorch` with torch 1.13. Running statistics are updated inside `grad` and `jvp` as usual. Inside `vmap` they are an
error, as BatchNorm's are: use `track_running_stats=False` there. A DTensor is replicated first, as for torch's own
`svd`: every process computes the whole result.
"""


def described():
    machine = torch.cuda.get_device_name(0) if DEVICE == "cuda" else "CPU"
    return f"torch {torch.__version__}, {machine}"


SHOWN = {"yes": "yes", "error": "error", "missing": "", "wrong": "**wrong**"}


def with_note(title):
    return f"{title} ({NOTES[title]})" if NOTES[title] else title


def section(cells):
    """A table whose columns are rows of the same cells. Rows of which not all cells are known are left out."""
    alike = {}
    for row in ROWS:
        if any((row.name, title) not in cells for title in COLUMNS):
            continue
        alike.setdefault(tuple(cells[row.name, title].state for title in COLUMNS), []).append(row.name)
    names = [", ".join(f"`{name}`" for name in group) for group in alike.values()]
    lines = [f"## {described()}", "", "| | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for place, title in enumerate(COLUMNS):
        lines.append(f"| {with_note(title)} | " + " | ".join(SHOWN[states[place]] for states in alike) + " |")
    errors = {}
    for (_, title), found in cells.items():
        if found.state == "error":
            errors.setdefault(title, []).append(found.why)
    if errors:
        lines += ["", "The errors:", ""]
        for title, messages in errors.items():
            lines.append(f"- {title}: `{shortened(messages[0])}`")
    return "\n".join(lines) + "\n"


def read_section(text):
    """The cells of a section that the page has."""
    states = {word: state for state, word in SHOWN.items()}
    why = dict(re.findall(r"(?m)^- (.+?): `(.*)`$", text))
    table = [line.split("|")[1:-1] for line in text.splitlines() if line.startswith("|")]
    groups = [re.findall(r"`(\w+)`", names) for names in table[0][1:]]
    lines = {head.strip(): words for head, *words in table[2:]}
    cells = {}
    for title in COLUMNS:
        for names, word in zip(groups, lines[with_note(title)]):
            state = states[word.strip()]
            cells.update({(name, title): Cell(state, why[title] if state == "error" else "") for name in names})
    return cells


def shortened(message):
    message = re.sub(r"^\w+(\.\w+)*: ", "", message).replace("`", "'")
    return message if len(message) <= 160 else message[:157] + "..."


def sections_of(text):
    parts = re.split(r"(?m)^(?=## )", text)[1:]
    return {part.splitlines()[0]: part.rstrip() + "\n" for part in parts}


def page(old, new):
    """The page with this torch's section in it; other sections stay. Newest torch first."""
    sections = {**sections_of(old), **sections_of(new)}

    def version(title):
        return [int(n) for n in re.findall(r"\d+", title)[:2]]

    return HEAD + "\n" + "\n".join(sections[title] for title in sorted(sections, key=version, reverse=True))


def run_column(title, first=0, step=1):
    """The cells of every step-th row."""
    found = []
    for row in ROWS[first::step]:
        torch.manual_seed(0)
        found.append(cell(row, title))
    return found


def run_in_a_process(title, first, step):
    """The same beside others: compilers take most of the time."""
    command = [sys.executable, __file__, "--column", title, "--rows", str(first), str(step)]
    result = subprocess.run(command, capture_output=True, text=True)
    lines = result.stdout.splitlines()
    if result.returncode != 0 or not lines:
        return [Cell("wrong", result.stderr[-500:])] * len(ROWS[first::step])
    return [Cell(*found) for found in json.loads(lines[-1])]


def run(titles, jobs):
    """(title, cells) of each column, as they are done; few columns in several parts at a time."""
    parts = max(1, jobs // len(titles)) if titles else 1
    one = run_column if jobs == 1 else run_in_a_process
    with ThreadPoolExecutor(jobs) as pool:
        begun = {title: [pool.submit(one, title, part, parts) for part in range(parts)] for title in titles}
        for title, shares in begun.items():
            found = [None] * len(ROWS)
            for part, share in enumerate(shares):
                found[part::parts] = share.result()
            yield title, found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--page", type=Path, help="write this torch's section of this page")
    parser.add_argument("--only", default="", help="only columns whose title has this in it; the page's others stay")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--column", help=argparse.SUPPRESS)
    parser.add_argument("--rows", nargs=2, type=int, default=(0, 1), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.column:
        print(json.dumps(run_column(arguments.column, *arguments.rows)))
        return 0
    titles = [title for title in COLUMNS if arguments.only in title]
    cells = {}
    for title, found in run(titles, arguments.jobs):
        print(f"{title}: " + " ".join(each.state for each in found), flush=True)
        for row, each in zip(ROWS, found):
            cells[row.name, title] = each
            if each.state == "wrong":
                print(f"  {row.name}: {each.why[:1000]}", flush=True)
    if arguments.page:
        old = arguments.page.read_text() if arguments.page.exists() else ""
        before = sections_of(old).get(f"## {described()}")
        if len(titles) < len(COLUMNS) and before is None:
            parser.error(f"--only: expected a page with a section '{described()}', whose other columns stay")
        cells = {**(read_section(before) if len(titles) < len(COLUMNS) else {}), **cells}
        keys = [(row.name, title) for title in COLUMNS for row in ROWS]
        in_order = {key: cells[key] for key in keys if key in cells}
        arguments.page.write_text(page(old, section(in_order)))
    return any(found.state == "wrong" for found in cells.values())


if __name__ == "__main__":
    sys.exit(main())
