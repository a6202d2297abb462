"""The package as it is installed, and what it says where it cannot work."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import keel
from keel import _library

RUN = "import keel, torch; print(keel.__version__, keel.__file__, keel.eigh(torch.eye(2)).eigenvalues)"


def run(code, **environment):
    settings = {k: v for k, v in os.environ.items() if k not in ("KEEL_LIBRARY", "PYTHONPATH")}
    settings.update(environment)
    return subprocess.run(
        [sys.executable, "-c", code], env=settings, cwd="/", capture_output=True, text=True
    )


def test_version_is_the_headers(root):
    assert f'"{keel.__version__}"' in (root / "include/keel/version.h").read_text()


def test_a_missing_library_is_named(root, tmp_path):
    result = run(RUN, PYTHONPATH=str(root / "python"), KEEL_LIBRARY=str(tmp_path / "none.so"))
    assert result.returncode != 0
    assert "ImportError: keel: KEEL_LIBRARY names" in result.stderr


def test_no_library_at_all_says_what_to_do(root, tmp_path):
    shutil.copytree(root / "python" / "keel", tmp_path / "a" / "python" / "keel",
                    ignore=shutil.ignore_patterns("lib"))  # fmt: skip
    result = run(RUN, PYTHONPATH=str(tmp_path / "a" / "python"))
    assert result.returncode != 0 and "pip install --no-build-isolation ." in result.stderr


def test_a_file_that_is_no_library_says_why(root, tmp_path):
    wrong = tmp_path / "libkeel_torch.so"
    wrong.write_text("not a library")
    result = run(RUN, PYTHONPATH=str(root / "python"), KEEL_LIBRARY=str(wrong))
    assert "must be built against this very torch" in result.stderr


def test_loading_twice_is_harmless():
    assert _library.load() is None


def test_pip_installs_a_package_that_works_alone(root, tmp_path):
    build = os.environ.get("KEEL_BUILD")
    if not build:
        pytest.skip("KEEL_BUILD names no build folder to install from")
    for module in ("pip", "setuptools", "wheel"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"this Python has no {module}")
    source = tmp_path / "source"  # a copy: pip leaves files beside the sources
    for folder in ("python", "include"):
        shutil.copytree(root / folder, source / folder, ignore=shutil.ignore_patterns("lib"))
    for file in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(root / file, source)
    installed = tmp_path / "installed"
    command = [sys.executable, "-m", "pip", "install", "--no-build-isolation", "--no-deps",
               "--no-index", "--quiet", "--target", str(installed), str(source)]  # fmt: skip
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    assert (installed / "keel" / "py.typed").is_file()
    ran = run(RUN, PYTHONPATH=str(installed))
    assert ran.returncode == 0, ran.stderr
    version, file = ran.stdout.split()[:2]
    assert version == keel.__version__ and Path(file).is_relative_to(installed)
