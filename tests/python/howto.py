"""The how-to pages: each has a program of examples/howto, letter for letter, and what it prints. test_docs.py holds
them to it. After a change of a program:

    KEEL_LIBRARY=build/lib/libkeel_torch.so python3 tests/python/howto.py      # writes both into the pages
"""

import contextlib
import io
import re
import sys
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
BLOCKS = re.compile(r"```python\n(.*?)```\n\n```text\n(.*?)```\n", re.DOTALL)
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?%?")
MOST_LINES = 80


def programs():
    return sorted((ROOT / "examples" / "howto").glob("*.py"))


def page(program):
    return ROOT / "docs" / "howto" / f"{program.stem}.md"


def printed_by(program):
    threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
    torch.set_num_threads(1)  # small matrices: on a busy machine threads that wait for each other take minutes
    with contextlib.redirect_stdout(io.StringIO()) as output:
        exec(compile(program.read_text(), str(program), "exec"), {})
    torch.set_num_threads(threads)
    torch.set_default_dtype(dtype)
    return "\n".join(line.rstrip() for line in output.getvalue().strip().splitlines()) + "\n"


def close(printed, expected):
    a, b = (float(number.rstrip("%")) for number in (printed, expected))
    return abs(a - b) <= (5 if expected.endswith("%") else max(0.05 * abs(b), 0.05))


def alike(printed, expected):
    """The same words, and numbers to 5 %, or 0.05: training in another torch ends a little elsewhere. Lines that begin
    with a function of torch's have its figures, which vary with its version and its random numbers."""
    if NUMBER.sub("#", " ".join(printed.split())) != NUMBER.sub("#", " ".join(expected.split())):
        return False
    ours = [re.sub(r"(?m)^torch\..*", "", text) for text in (printed, expected)]
    return all(map(close, *map(NUMBER.findall, ours)))


def main():
    sys.path.insert(0, str(ROOT / "python"))
    for program in programs():
        block = f"```python\n{program.read_text()}```\n\n```text\n{printed_by(program)}```\n"
        text = page(program).read_text()
        page(program).write_text(BLOCKS.sub(lambda _: block, text, count=1))
        print(f"wrote {page(program).relative_to(ROOT)}")


if __name__ == "__main__":
    main()
