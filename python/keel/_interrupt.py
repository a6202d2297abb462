"""Lets Ctrl-C stop a long call on the CPU.

Python runs signal handlers between its own instructions, so not while an operator computes. The library asks for them
between its steps, on the thread that called. If a handler raises, the operator ends with an error, and the handler's
exception takes its place here.
"""

from __future__ import annotations

import ctypes
import threading
from typing import Any, Callable, Optional

import torch
from torch import Tensor

from . import _library
from ._replicated import is_distributed, replicated

#: Matrices of fewer numbers are done in a tenth of a second.
LONG = 512 * 512

is_compiling: Callable[[], bool] = getattr(
    getattr(torch, "compiler", None), "is_compiling", lambda: False
)


class _Signals(ctypes.Structure):
    """``keel_signals`` of libtorch/threads.cpp."""

    _fields_ = [
        ("enter", ctypes.c_void_p),
        ("check", ctypes.c_void_p),
        ("fetch", ctypes.c_void_p),
        ("leave", ctypes.c_void_p),
        ("seconds", ctypes.c_double),
        ("exception", ctypes.c_void_p * 3),
    ]


def _python(name: str) -> Optional[int]:
    return ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value


def _is_long(matrix: Any) -> bool:
    return (
        isinstance(matrix, Tensor)
        and not is_compiling()
        and not torch.jit.is_tracing()  # sizes are tensors then
        and matrix.device.type == "cpu"
        and matrix.numel() >= LONG
        and threading.current_thread() is threading.main_thread()  # the only one that runs handlers
    )


def check_tensor(operation: Any, value: Any) -> None:
    if not isinstance(value, Tensor) and not hasattr(value, "__torch_function__"):  # which torch.fx's stand-ins have
        got, makes = type(value).__name__, "torch.as_tensor"
        if isinstance(value, (list, tuple)) and any(isinstance(each, Tensor) for each in value):
            got, makes = f"{got} of tensors", "torch.stack of equal shapes"
        raise TypeError(f"{operation}: expected a tensor, got {got}; {makes} makes one")


def call(operator: Callable[..., Any], matrix: Tensor, *rest: Any, seconds: float = 0.1) -> Any:
    """``operator(matrix, *rest)``, looking for signals every so many seconds if it may take long."""
    check_tensor(operator, matrix)
    if is_distributed(matrix):
        return replicated(operator, matrix, *rest)
    if not _is_long(matrix) or _library.signals is None:
        return operator(matrix, *rest)
    wanted = _Signals(
        _python("PyGILState_Ensure"), _python("PyErr_CheckSignals"), _python("PyErr_Fetch"),
        _python("PyGILState_Release"), seconds,
    )  # fmt: skip
    before = _library.signals(ctypes.addressof(wanted))
    try:
        return operator(matrix, *rest)
    except RuntimeError:
        if not wanted.exception[0]:
            raise
        restore = ctypes.pythonapi["PyErr_Restore"]  # a function of our own, for its argument types
        restore.argtypes, restore.restype = [ctypes.c_void_p] * 3, None
        restore(*wanted.exception)  # raises it
    finally:
        _library.signals(before)
