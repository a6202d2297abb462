"""Runs the package from the source tree; CMake names the library in KEEL_LIBRARY."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / "python"), str(HERE.parent / "python"), str(HERE)]

torch = pytest.importorskip("torch")
if not torch.distributed.is_available():
    collect_ignore_glob = ["*"]


@pytest.fixture
def root():
    return HERE.parents[1]
