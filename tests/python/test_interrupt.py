"""Ctrl-C during a long call on the CPU."""

import ctypes
import functools
import operator
import signal

import pytest
import torch

import keel
from keel import _interrupt, _library

pytestmark = pytest.mark.skipif(_library.signals is None, reason="something else loaded the library")

EIGH = torch.ops.keel.eigh.default._op
#: A signal that arrives while only C runs, as while an operator computes.
ARRIVE = functools.partial(ctypes.CDLL(None)["raise"], signal.SIGINT.value)


@pytest.fixture(scope="module")
def matrix():
    m = torch.randn(520, 520, generator=torch.Generator().manual_seed(1))
    return m + m.mT


def interrupted(matrix, seconds=0.0):
    """Whether eigh was left before its end, and what it returned."""
    results = []

    def in_c(m):
        # Python looks for signals between instructions, so the three calls are one.
        steps = [ARRIVE, functools.partial(EIGH, m, "masked", False), functools.partial(results.append, "reached")]
        return list(map(operator.methodcaller("__call__"), steps))[1]

    try:
        return results, _interrupt.call(in_c, matrix, seconds=seconds)
    except BaseException as error:
        return results, error


@pytest.fixture
def handler():
    """Sets what SIGINT does, and restores it."""
    before = signal.getsignal(signal.SIGINT)
    yield functools.partial(signal.signal, signal.SIGINT)
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("threads", [1, 2])
def test_ctrl_c_stops_a_call_between_its_steps(matrix, handler, threads):
    handler(signal.default_int_handler)
    used = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        expected = keel.eigh(matrix)
        reached, error = interrupted(matrix)
        assert type(error) is KeyboardInterrupt and reached == []
        for ours, theirs in zip(keel.eigh(matrix), expected):  # nothing is left behind
            assert torch.equal(ours, theirs)
    finally:
        torch.set_num_threads(used)


def test_the_handlers_own_exception_arrives(matrix, handler):
    class TooLate(Exception):
        pass

    def raises(*_):
        raise TooLate("at once")

    handler(raises)
    reached, error = interrupted(matrix)
    assert type(error) is TooLate and str(error) == "at once" and reached == []


def test_a_handler_that_returns_lets_the_call_go_on(matrix, handler):
    calls = []
    handler(lambda *_: calls.append(keel.eigh(matrix).eigenvalues))  # a call within the call
    reached, result = interrupted(matrix)
    assert reached == ["reached"] and len(calls) == 1
    assert torch.equal(result[0], calls[0])


def test_small_matrices_and_rare_looks_finish_first(matrix, handler):
    handler(signal.default_int_handler)
    for m, seconds in ((matrix[:8, :8], 0.0), (matrix, 1e6)):
        reached, error = interrupted(m, seconds)
        assert type(error) is KeyboardInterrupt and reached == ["reached"]


def test_errors_of_the_operator_stay(handler):
    with pytest.raises(RuntimeError, match="expected"):
        keel.eigh(torch.randn(600, 500))
