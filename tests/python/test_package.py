"""The package as it is installed, and what it says where it cannot work."""

import ctypes
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
import torch

import keel
from keel import _library

ROOT = Path(__file__).resolve().parents[2]

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
    assert "ImportError: keel: expected KEEL_LIBRARY to name a file" in result.stderr


def test_no_library_at_all_says_what_to_do(root, tmp_path):
    shutil.copytree(root / "python" / "keel", tmp_path / "a" / "python" / "keel",
                    ignore=shutil.ignore_patterns("lib"))  # fmt: skip
    result = run(RUN, PYTHONPATH=str(tmp_path / "a" / "python"))
    assert result.returncode != 0 and "make install" in result.stderr


def test_a_file_that_is_no_library_says_why(root, tmp_path):
    wrong = tmp_path / "libkeel_torch.so"
    wrong.write_text("not a library")
    result = run(RUN, PYTHONPATH=str(root / "python"), KEEL_LIBRARY=str(wrong))
    assert "Build keel for this torch (make install)" in result.stderr


@pytest.mark.skipif(shutil.which("c++") is None, reason="needs a compiler")
def test_another_library_is_named(root, tmp_path):
    other = tmp_path / "libother.so"
    subprocess.run(["c++", "-shared", "-fPIC", "-x", "c++", "-", "-o", other], input="", text=True, check=True)
    result = run(RUN, PYTHONPATH=str(root / "python"), KEEL_LIBRARY=str(other))
    words = f"ImportError: keel: expected libkeel_torch.so of this version, got {other}, which does not have keel's"
    assert words in result.stderr and "KEEL_LIBRARY names it" in result.stderr


@pytest.mark.parametrize("text", ["", "2.11", "what\nis this\n", "2.11 cpu more", "\x00\x01"])
def test_a_garbled_note_of_the_version_is_named(tmp_path, text):
    (tmp_path / "built_for").write_text(text)
    with pytest.raises(ImportError, match="built_for to hold a torch version and a CUDA version or cpu, got "):
        _library._check_torch(tmp_path / "libkeel_torch.so")


def test_loading_twice_is_harmless():
    assert _library.load() is None


def load_without_a_reason(path):
    """As torch 2.9 and later: the loader's message is only the cause."""
    try:
        ctypes.CDLL(path)
    except OSError as error:
        raise OSError(f"Could not load this library: {path}") from error


@pytest.mark.skipif(shutil.which("c++") is None, reason="needs a compiler")
@pytest.mark.parametrize("load", [torch.ops.load_library, load_without_a_reason])
def test_libraries_beside_torch_are_found_from_elsewhere(tmp_path, monkeypatch, load):
    """As CUDA's are, where keel is in a virtual environment and torch is not."""
    monkeypatch.setattr(torch.ops, "load_library", load)
    site, keels = tmp_path / "site", tmp_path / "environment"
    beside = site / "nvidia" / "solver" / "lib"
    beside.mkdir(parents=True), keels.mkdir()
    # The process has a library of this name after the test.
    needed, library = beside / f"libkeel_test_{load.__name__}.so.7", keels / "libwants.so"

    def link(what, *arguments):
        command = ["c++", "-shared", "-fPIC", "-x", "c++", "-", "-o", what, *arguments]
        subprocess.run(command, input="", text=True, check=True)

    link(needed, f"-Wl,-soname,{needed.name}")
    link(library, "-x", "none", "-Wl,--no-as-needed", needed)
    with pytest.raises(OSError, match=f"{needed.name}: "):
        _library._load(library)
    monkeypatch.setattr(torch, "__file__", str(site / "torch" / "__init__.py"))
    _library._load(library)
    assert str(needed) in Path("/proc/self/maps").read_text()


def test_importing_does_not_import_torchs_compiler(root):
    """It takes longer than all else."""
    code = "import sys, torch; before = 'torch._dynamo' in sys.modules; import keel"
    code += "; assert before == ('torch._dynamo' in sys.modules)"
    result = run(code, PYTHONPATH=str(root / "python"), KEEL_LIBRARY=os.environ["KEEL_LIBRARY"])
    assert result.returncode == 0, result.stderr


def setuptools_makes_wheels():
    """By itself, from 70.1 on. To import it would change distutils for this process."""
    return tuple(int(part) for part in importlib.metadata.version("setuptools").split(".")[:2]) >= (70, 1)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A copy of what a package is made of, and a wheel in its dist/."""
    if not os.environ.get("KEEL_BUILD"):
        pytest.skip("KEEL_BUILD names no build folder to take the libraries from")
    for module in ("pip", "setuptools", "wheel"):
        if importlib.util.find_spec(module) is None and not (module == "wheel" and setuptools_makes_wheels()):
            pytest.skip(f"this Python has no {module}")
    copy = tmp_path_factory.mktemp("source")  # pip leaves files beside the sources
    for folder in ("python", "include"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("lib", "*.egg-info"))
    (copy / "scripts").mkdir()
    for file in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "scripts/wheel", "scripts/check_wheel.py"):
        shutil.copy(ROOT / file, copy / file)
    result = make(copy)
    if "looks for libraries in" in result.stderr:
        pytest.skip("these libraries find torch by its path; without KEEL_BUILD make wheel builds others")
    assert result.returncode == 0, result.stdout + result.stderr
    return copy


def make(source, *arguments, python=sys.executable, **environment):
    """What make wheel and make install run."""
    settings = {**os.environ, "PYTHON": str(python), **environment}
    return subprocess.run(
        [source / "scripts/wheel", *arguments], cwd=source, env=settings, capture_output=True, text=True
    )


FIRST_GRADIENT = """
import torch, keel
M = torch.eye(3, requires_grad=True)
keel.inv_sqrtm(M)[0, 1].backward()
assert M.grad[0, 1] == -0.25
print(keel.__version__, keel.__file__)
"""


def first_gradient(python, **environment):
    """Without a compiler or anything else on the way."""
    settings = {"PATH": "/nonexistent", **environment}
    return subprocess.run([python, "-c", FIRST_GRADIENT], env=settings, cwd="/", capture_output=True, text=True)


def test_a_wheel_has_nothing_of_this_machine(source):
    (wheel,) = (source / "dist").glob("*.whl")
    torch_version = ".".join(torch.__version__.split(".")[:2])
    assert f"+torch{torch_version}." in wheel.name and "-py3-none-manylinux_2_" in wheel.name
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read(next(n for n in archive.namelist() if n.endswith("METADATA"))).decode()
    assert re.search(rf"Requires-Dist: torch.*>={re.escape(torch_version)}\.0a0", metadata), metadata
    checked = subprocess.run([sys.executable, source / "scripts/check_wheel.py", wheel], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
    assert "libkeel_torch.so" in checked.stdout


def test_a_library_that_knows_this_machine_is_found(source, tmp_path):
    (wheel,) = (source / "dist").glob("*.whl")
    spoiled = tmp_path / wheel.name
    shutil.copy(wheel, spoiled)
    with zipfile.ZipFile(spoiled, "a") as archive:
        archive.writestr("keel/note", f"built in {source}/build")
    check = [sys.executable, source / "scripts/check_wheel.py", spoiled]
    result = subprocess.run(check, capture_output=True, text=True)
    assert result.returncode == 1 and f"keel/note names {source}" in result.stderr


@pytest.fixture(scope="module")
def environment(source, tmp_path_factory):
    """A fresh virtual environment with the wheel in it."""
    folder = tmp_path_factory.mktemp("environment")
    made = [sys.executable, "-m", "venv", "--without-pip", "--system-site-packages", folder]
    if subprocess.run(made, capture_output=True).returncode != 0:
        pytest.skip("this Python has no venv")
    (wheel,) = (source / "dist").glob("*.whl")
    python = folder / "bin" / "python"
    has_torch = subprocess.run([python, "-c", "import pip, importlib.util as u; assert u.find_spec('torch')"])
    if has_torch.returncode != 0:
        pytest.skip("torch is in a virtual environment, which another one does not see")
    result = make(source, "--install", wheel, python=python)
    assert result.returncode == 0, result.stdout + result.stderr
    return folder


def test_a_wheel_works_in_a_fresh_environment_without_a_compiler(environment):
    ran = first_gradient(environment / "bin" / "python")
    assert ran.returncode == 0, ran.stderr
    version, file = ran.stdout.split()
    assert version == keel.__version__ and Path(file).is_relative_to(environment)
    assert next(environment.rglob("keel/py.typed")).is_file()


def test_a_wheel_for_another_torch_says_which(environment):
    note = next(environment.rglob("keel/lib/built_for"))
    kept = note.read_text()
    note.write_text("9.7\n13.0\n")
    try:
        ran = first_gradient(environment / "bin" / "python")
    finally:
        note.write_text(kept)
    assert ran.returncode != 0
    assert "ImportError: keel: this package was built for torch 9.7 (with CUDA 13.0), got torch" in ran.stderr


def test_make_install_does_not_leave_a_virtual_environment_without_torch(tmp_path):
    made = [sys.executable, "-m", "venv", "--without-pip", tmp_path]
    if subprocess.run(made, capture_output=True).returncode != 0:
        pytest.skip("this Python has no venv")
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    result = make(ROOT, "--install", "no.whl", python="", PATH=path, PYTHONPATH="", PYTHONUSERBASE=str(tmp_path))
    assert result.returncode == 1 and "wheel: python3 has no torch" in result.stderr, result.stdout + result.stderr


def test_make_install_works_on_a_python_that_belongs_to_the_system(source, tmp_path):
    stdlib = Path(sysconfig.get_path("stdlib"))
    if sys.prefix != sys.base_prefix or not (stdlib / "EXTERNALLY-MANAGED").is_file():
        pytest.skip("this Python does not belong to the system")
    (wheel,) = (source / "dist").glob("*.whl")
    result = make(source, "--install", wheel, PYTHONUSERBASE=str(tmp_path))
    assert result.returncode == 0, result.stdout + result.stderr
    assert "this Python is the system's" in result.stdout and str(tmp_path) in result.stdout
    ran = first_gradient(sys.executable, PYTHONUSERBASE=str(tmp_path))
    assert ran.returncode == 0 and Path(ran.stdout.split()[1]).is_relative_to(tmp_path), ran.stderr
