"""Finds libkeel_torch and loads it into torch, which registers ``torch.ops.keel.*``."""

from __future__ import annotations

import ctypes
import os
import re
from pathlib import Path
from typing import Any, List, Optional

import torch

_FILE = "libkeel_torch.so"
_PACKAGE = Path(__file__).resolve().parent

#: keel_look_for_signals of the library, for _interrupt.py; None if something else loaded it.
signals: Any = None


def _candidates() -> List[Path]:
    return [
        _PACKAGE / "lib" / _FILE,  # installed
        _PACKAGE.parents[1] / "build" / "lib" / _FILE,  # the source tree, after `make`
    ]


def _check_torch(path: Path) -> None:
    """Checks that torch has the version that a package was built for. With another one it would not load, or crash."""
    file = path.parent / "built_for"
    if not file.is_file():
        return
    words = file.read_text(errors="replace").split()
    if len(words) != 2 or not re.fullmatch(r"\d+\.\d+", words[0]):
        raise ImportError(
            f"keel: expected {file} to hold a torch version and a CUDA version or cpu, got {' '.join(words)[:80]!r}. "
            "Install the package again (make install)"
        )
    wanted, cuda = words
    found = re.match(r"\d+\.\d+", torch.__version__)
    if found is None or found.group() == wanted:
        return
    kind = "without CUDA" if cuda == "cpu" else f"with CUDA {cuda}"
    raise ImportError(
        f"keel: this package was built for torch {wanted} ({kind}), got torch {torch.__version__} from "
        f"{Path(torch.__file__).parent}. Install torch {wanted}, or build keel for this torch: make install"
    )


def _beside_torch(name: str) -> Optional[Path]:
    """A CUDA library from the nvidia-* packages that pip installs with torch."""
    found = sorted(Path(torch.__file__).parents[1].glob(f"nvidia/*/lib/{name}"))
    return found[0] if found else None


def _load(path: Path) -> None:
    """Loads the library, and first the CUDA libraries that it cannot find itself.

    It finds them if keel is installed next to torch, but not, for example, in a virtual environment that uses the
    system's torch.
    """
    tried = set()
    while True:
        try:
            # Not by torch at first: its newer versions do not say which library is missing.
            ctypes.CDLL(str(path))
            break
        except OSError as error:
            missing = re.match(r"(lib[^\s/]+\.so[\w.]*): ", str(error))
            needed = _beside_torch(missing.group(1)) if missing else None
            if needed is None or needed in tried:
                raise
            tried.add(needed)
            ctypes.CDLL(str(needed), mode=ctypes.RTLD_GLOBAL)
    torch.ops.load_library(str(path))


def _find_signals(path: Path) -> None:
    global signals
    signals = getattr(ctypes.CDLL(str(path)), "keel_look_for_signals", None)
    if signals is not None:
        signals.argtypes, signals.restype = [ctypes.c_void_p], ctypes.c_void_p


def load() -> Optional[Path]:
    """Loads the library and returns its path, or None if this process already has the operators."""
    if hasattr(torch.ops.keel, "eigh"):
        return None
    named = os.environ.get("KEEL_LIBRARY")
    if named:
        path = Path(named)
        if not path.is_file():
            raise ImportError(f"keel: expected KEEL_LIBRARY to name a file, got {path}")
    else:
        found = [path for path in _candidates() if path.is_file()]
        if not found:
            looked = " nor ".join(str(path) for path in _candidates())
            raise ImportError(
                f"keel: expected {_FILE} in KEEL_LIBRARY, which is not set, and found neither {looked}. "
                "Install the package (make install), or build the library in this tree (cmake --preset release && "
                "cmake --build --preset release --target keel_torch)"
            )
        path = found[0]
    _check_torch(path)
    try:
        _load(path)
    except OSError as error:
        raise ImportError(
            f"keel: {path} does not load into torch {torch.__version__} from "
            f"{Path(torch.__file__).parent}. Build keel for this torch (make install): {error}"
        ) from error
    if not all(hasattr(torch.ops.keel, name) for name in ("eigh", "written")):
        raise ImportError(
            f"keel: expected {_FILE} of this version, got {path}, which does not have keel's operators"
            + (". KEEL_LIBRARY names it" if named else "")
        )
    _find_signals(path)
    return path
