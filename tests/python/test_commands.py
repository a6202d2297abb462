"""Every command in README.md, CONTRIBUTING.md and docs that a reader may copy.

What it names exists: targets, presets, files, the program's options. Beyond that each line of an indented block is
run here (RUN), is run by another test or by make test itself (ELSEWHERE), or has a reason why not (NOT_RUN). Blocks of
Python are test_docs.py's.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("KEEL_BUILD", ROOT / "build"))
KEEL = BUILD / "bin" / "keel"

RUN = [
    "build/bin/keel reproduce --list",
    "build/bin/keel reproduce table1 --fresh",
    "build/bin/keel inspect covariance.npy --eps 1e-4 --terms 19",
    "keel inspect covariance.npy --eps 1e-4 --terms 19",
    "build/bin/keel_torch_test --gtest_filter=Eigh*",
]
ELSEWHERE = {
    "make setup": ".ci/run",
    "make test": ".ci/run",
    "make lint": ".ci/run",
    "cmake --preset release": "Makefile",
    "cmake --build --preset release": "Makefile",
    "cmake --build --preset release --target <one>": "Makefile",
    "cmake --install build --prefix <where>": "tests/consumer/run.cmake",
    "cmake --install build/library --prefix <where>": "tests/consumer/run.cmake",
    "ctest --preset release -R eigh": "Makefile",
    "make install": "tests/python/test_package.py",
    "make wheel": "tests/python/test_package.py",
    "pip install --no-build-isolation .": "tests/python/test_package.py",
    "scripts/get-cifar cifar10 data": "lab/tests/get_cifar.py",
    "build/bin/keel report runs/*": "lab/tests/cli/commands_test.cpp",
    "keel inspect runs/zca": "lab/tests/cli/commands_test.cpp",
    "torchrun --nproc_per_node=4 --no_python -- keel train --norm zca": "lab/tests/processes/processes_test.cpp",
    "scripts/fuzz 60 npy packed": "lab/tests/fuzz/CMakeLists.txt",
}
NOT_RUN = {
    "make docs": "installs Sphinx and takes half a minute; tests check the links of the pages it is made of",
    "make deb": "builds keel anew and installs what packages are made with; make test-deb uses what it makes",
    "PYTHONPATH=python python3 examples/rotations.py": "minutes; test_examples.py runs it in small",
    "PYTHONPATH=python python3 examples/cifar.py data --bfloat16 --channels-last --compile":
        "needs CIFAR-10; test_examples.py runs it on a few images",
    "cmake --preset release -DKEEL_TORCH=OFF -DKEEL_TESTS=OFF -DKEEL_BENCH=OFF":
        "would change the build at hand; the preset sanitize builds the core alone",
    "cmake --preset library && cmake --build --preset library": "builds keel anew, as setup.py does",
    "cmake --preset library && cmake --build --preset library && sudo cmake --install build/library":
        "the same; tests/consumer/run.cmake installs what is built",
    "make demo": "trains for minutes; the tests run the commands it is made of with smaller sets",
    "make fuzz": "a minute for each reader; make test attacks each for two seconds",
    "make fuzz SECONDS=600 ARGS=npy": "ten minutes",
    "make bench ARGS=--full": "minutes, and figures of a busy machine mean nothing",
    "make bench-gpu": "needs a GPU",
    "KEEL_FUZZ_READER=npy build/bin/keel_fuzz build/fuzz/findings/npy-crash-...": "needs a finding",
    "build/bin/keel train --norm zca --group-size 16 --source cifar10 --path data": "needs CIFAR-10",
    "build/bin/keel reproduce table2 --path data --out mine/table2 --jobs 4": "needs CIFAR-10, and hours",
    "build/bin/keel reproduce full --path data --out mine/full --runs runs": "needs CIFAR-10, and days",
    "scripts/reproduce-gpu --data cifar-10-batches-bin --data100 cifar-100-binary --seconds 600 --save results.tar.gz":
        "needs a GPU and CIFAR",
    "torchrun --nnodes=2 --nproc_per_node=8 --no_python -- keel train --norm zca": "needs two machines",
}

# Blocks of other languages, by page: the test that compiles or reads the same.
FENCES = {
    ("README.md", "cpp"): "tests/readme_test.sh",
    ("README.md", "cmake"): "tests/consumer/project/CMakeLists.txt",
    ("docs/core.md", "cpp"): "tests/readme_test.sh",
    ("docs/core.md", "cmake"): "tests/consumer/project/CMakeLists.txt",
    ("docs/install.md", "cmake"): "tests/consumer/project/CMakeLists.txt",
    ("docs/distributed.md", "cpp"): "tests/distributed/gloo_rank.cpp",
    ("docs/lab.md", "toml"): "tests/python/test_commands.py",
}

COMMAND = re.compile(
    r"(?:[A-Z_]+=\S+ )*(?:make|cmake|ctest|pip|python3|torchrun|keel|(?:build/bin|scripts|tests|lab)/\S+)(?: |$)"
)
FENCE = re.compile(r"^```.*?^```\n", re.DOTALL | re.MULTILINE)


def blocks(text):
    """The commands of indented blocks, without their remarks."""
    for line in re.findall(r"^    (\S.*)$", FENCE.sub("", text), re.MULTILINE):
        command = re.sub(r"\s+# .*", "", line).strip()
        if COMMAND.match(command):
            yield command


def inline(text):
    prose = re.sub(r"^    .*$", "", FENCE.sub("", text), flags=re.MULTILINE)
    for code in re.findall(r"`([^`]+)`", prose):
        command = " ".join(code.split())
        if " " in command and COMMAND.match(command):
            yield command


def pages():
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def every(kind):
    return sorted({command for page in pages() for command in kind(page.read_text(encoding="utf-8"))})


@lru_cache(maxsize=None)
def help_of(subcommand):
    return subprocess.run([KEEL, *subcommand.split(), "--help"], capture_output=True, text=True, check=True).stdout


def options(words):
    return [word.partition("=")[0] for word in words if re.match(r"--[a-z]", word)]


def unknown(command):
    """What a command names that is not there."""
    for part in command.split(" && "):
        words = shlex.split(part)
        while "=" in words[0]:
            words.pop(0)
        program = words.pop(0)
        if program == "make":
            target = re.compile(rf"^{re.escape(words[0])}:", re.MULTILINE)
            if not target.search((ROOT / "Makefile").read_text()):
                yield f"make's target {words[0]}"
        if program in ("cmake", "ctest") and "--preset" in words:
            presets = json.loads((ROOT / "CMakePresets.json").read_text())
            kind = "testPresets" if program == "ctest" else "buildPresets" if "--build" in words else "configurePresets"
            name = words[words.index("--preset") + 1]
            if name not in [preset["name"] for preset in presets[kind]]:
                yield f"the preset {name}"
        if "/" in program and not program.startswith("build/") and not (ROOT / program).is_file():
            yield program
        if program == "python3" and not (ROOT / words[0]).is_file():
            yield words[0]
        if program in ("keel", "build/bin/keel") and KEEL.is_file():
            subcommand = words[0] if words and re.match(r"[a-z]", words[0]) else ""
            for option in options(words):
                if not re.search(rf"{option}\b", help_of(subcommand)):
                    yield f"keel {subcommand}'s option {option}"


@pytest.mark.parametrize("command", sorted({*every(blocks), *every(inline)}))
def test_what_it_names_exists(command):
    assert not list(unknown(command))


def test_every_command_has_its_place():
    listed = [*RUN, *ELSEWHERE, *NOT_RUN]
    assert len(listed) == len(set(listed))
    not_listed = sorted(set(every(blocks)) - set(listed))
    not_in_the_docs = sorted(set(listed) - set(every(blocks)))
    assert (not_listed, not_in_the_docs) == ([], [])
    for file in ELSEWHERE.values():
        assert (ROOT / file).is_file(), file


def test_every_block_has_its_place():
    found = {
        (page.relative_to(ROOT).as_posix(), language)
        for page in pages()
        for language in re.findall(r"^```(\w+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert {pair for pair in found if pair[1] not in ("math", "python", "text")} == set(FENCES)
    for file in FENCES.values():
        assert (ROOT / file).is_file(), file


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    """A folder like the root of the repository, to write into."""
    folder = tmp_path_factory.mktemp("reader")
    (folder / "build").symlink_to(BUILD)
    for name in ("README.md", "recipe.toml", "results.json"):
        for file in (ROOT / "lab" / "experiments").glob(f"**/{name}"):
            copy = folder / file.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, copy)
    numpy = pytest.importorskip("numpy")
    numpy.save(folder / "covariance.npy", torch.randn(8, 64).cov().numpy())
    return folder


def run(command, folder):
    program = command.split()[0]
    if not (BUILD / "bin" / Path(program).name).is_file():
        pytest.skip(f"{program} was not built")
    path = f"{BUILD / 'bin'}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("command", RUN)
def test_it_runs(command, reader):
    run(command, reader)


def test_the_settings_of_the_lab_page_train(reader):
    found = re.search(r"^```toml\n(.*?)^```", (ROOT / "docs" / "lab.md").read_text(), re.DOTALL | re.MULTILINE)
    (reader / "mine.toml").write_text(found[1])
    small = "--source synthetic --model resnet_small --width 16 --train-limit 64 --test-limit 32 --batch 32 --epochs 1"
    run(f"keel train --config mine.toml {small} --run small", reader)
