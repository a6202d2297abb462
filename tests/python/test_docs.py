"""Every example in docstrings and in the docs runs."""

import doctest
import importlib
import inspect
import pkgutil
import re

import pytest
import torch

import howto
import keel

MODULES = ["keel"] + [
    module.name for module in pkgutil.walk_packages(keel.__path__, "keel.")
]


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name):
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    module = importlib.import_module(name)
    result = doctest.testmod(module, globs={"torch": torch, "keel": keel}, optionflags=flags)
    assert result.failed == 0


def test_every_public_function_and_layer_has_an_example():
    for owner in (keel, keel.nn):
        for name in owner.__all__:
            thing = getattr(owner, name)
            is_layer = isinstance(thing, type) and issubclass(thing, torch.nn.Module)
            if name != "nn" and (is_layer or not isinstance(thing, type)):
                examples = doctest.DocTestFinder().find(thing, name)
                assert any(test.examples for test in examples), name


def test_every_public_function_tells_its_arguments_and_shapes():
    for owner in (keel, keel.nn):
        for name in owner.__all__:
            thing = getattr(owner, name)
            if inspect.isfunction(thing):
                text = inspect.getdoc(thing)
                missing = [each for each in inspect.signature(thing).parameters if not re.search(rf"\b{each}\b", text)]
                assert not missing and (owner is keel.nn or "..." in text), (name, missing)


def test_every_public_name_is_on_its_page(root):
    named = re.findall(r"^\.\. auto\w+:: (\w+)$", (root / "docs" / "site" / "python.rst").read_text(), re.MULTILINE)
    assert set(named) - {"keel"} == {*keel.__all__, *keel.nn.__all__} - {"nn"}


def test_every_page_is_in_both_tables_of_contents(root):
    """In docs/README.md, and in the site's, which is what make docs would complain of."""
    readme, site = ((root / "docs" / name).read_text() for name in ("README.md", "site/contents.txt"))
    for page in [*(root / "docs").glob("*.md"), *(root / "docs" / "howto").glob("*.md")]:
        name = page.relative_to(root / "docs").as_posix()
        assert f"\ndocs/{name[:-3]}\n" in site, name
        assert name == "README.md" or f"]({name})" in readme, name


def pages(root):
    """Those of docs/howto have programs of their own."""
    how_tos = [howto.page(program) for program in howto.programs()]
    return [root / "README.md", *sorted(set((root / "docs").rglob("*.md")) - set(how_tos))]


def test_code_of_the_docs_runs(root, capsys):
    """All blocks of a page in one namespace. A text block right behind one is what it prints."""
    block = re.compile(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```\n)?", re.DOTALL)
    tried = []
    for page in pages(root):
        space = {}
        for code, output in block.findall(page.read_text()):
            capsys.readouterr()
            exec(compile(code, str(page), "exec"), space)
            printed = capsys.readouterr().out
            assert not output or printed == output, page
            tried.append((page.name, bool(output)))
    assert len({name for name, _ in tried}) >= 6
    assert ("README.md", True) in tried


@pytest.mark.parametrize("program", howto.programs(), ids=lambda program: program.stem)
def test_how_to(program):
    """It is short, and its page has it and what it prints (tests/python/howto.py writes both)."""
    assert len(program.read_text().splitlines()) <= howto.MOST_LINES
    found = howto.BLOCKS.search(howto.page(program).read_text())
    assert found and found[1] == program.read_text()
    printed = howto.printed_by(program)
    assert howto.alike(printed, found[2]), printed
