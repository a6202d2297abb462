"""Gradient rules and rank policies, as small frozen dataclasses.

They mirror the structs of the C++ headers ``keel/gradient_rule.h`` and ``keel/spectral.h``. ``str(rule)`` is the string
that the operators take, and the core checks it when the object is created. Every function that takes a rule or a policy
also takes such a string. Where a rank policy is expected, a whole number k means ``LeadingCount(k)``:

>>> str(keel.PowerIteration(terms=9))
'power_iteration(terms=9)'
>>> eigenvalues, eigenvectors = keel.eigh(torch.eye(4), "power_iteration(terms=9)")
"""

from __future__ import annotations

import math
import numbers
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Dict, Optional, Tuple, Union, get_args

import torch

from ._interrupt import is_compiling

__all__ = [
    "Algorithm1",
    "Analytic",
    "Exact",
    "FullRank",
    "LeadingCount",
    "LeadingEnergy",
    "LeadingReliable",
    "Lorentzian",
    "Masked",
    "PowerIteration",
    "Taylor",
]


def whole(operation: str, name: str, value: Any, least: int) -> int:
    """``value`` as an int. It must be an integer of Python or numpy, not a bool, at least ``least``, and of 64 bits."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{operation}: expected {name} to be a whole number, got {value!r}")
    if value < least:
        raise ValueError(f"{operation}: expected {name} >= {least}, got {value}")
    if int(value) >= 2**63:
        raise ValueError(f"{operation}: expected {name} < 2**63, got {value}")
    return int(value)


def finite(operation: str, name: str, value: Any) -> float:
    """``value`` as a float. It must be a finite real number of Python or numpy, not a bool."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{operation}: expected {name} to be a number, got {value!r}")
    if not math.isfinite(value):
        raise ValueError(f"{operation}: expected a finite {name}, got {value}")
    return float(value)


_LEARNS = {  # what to write for a number that is learned
    "exponent": ", or call keel.spectral(matrix, lambda l: l**exponent)",
    "threshold": ", or call keel.singular(matrix, lambda s: (s - threshold).relu())",
}


def number_of(operation: str, name: str, value: Any, least: float = -math.inf) -> float:
    """``value``, which may be a tensor of one number, as a finite float."""
    if isinstance(value, torch.Tensor):
        if value.requires_grad:
            raise TypeError(
                f"{operation}: expected {name} to be a number without a gradient, got {value!r}; pass {name}.detach()"
                + _LEARNS.get(name, "")
            )
        if value.numel() == 1:
            value = value.item()
    number = finite(operation, name, value)
    if number < least:
        raise ValueError(f"{operation}: expected {name} >= {least}, got {value}")
    return number


_INCOMPLETE = {"power": "exponent", "soft_threshold": "threshold"}  # without it they would return the matrix itself


def function_text(operation: str, function: Any, exponent: Any) -> str:
    """The text of a function of eigenvalues or singular values, with its exponent if that is given apart."""
    if not isinstance(function, str):
        raise TypeError(f"{operation}: expected function to be a text such as 'exp', or callable, got {function!r}")
    if exponent is not None:
        if function != "power":
            raise ValueError(f"{operation}: expected an exponent only with 'power', got one with {function!r}")
        return f"power(exponent={number_of(operation, 'exponent', exponent)!r})"
    if function in _INCOMPLETE:
        raise ValueError(f"{operation}: expected '{function}({_INCOMPLETE[function]}=...)', got {function!r}")
    return function


def flag(operation: str, name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"{operation}: expected {name} to be True or False, got {value!r}")


@lru_cache(maxsize=1024)
def checked(kind: str, text: str) -> str:
    """Checks the string of a spectral_rule, rank_policy or layer_map, and returns it with every field written out."""
    return torch.ops.keel.written(kind, text)


def _number(kind: Any, name: str, value: Any) -> str:
    """A field's value (a number of Python or numpy, a bool or None) as the core reads it."""
    if value is None:
        return "off"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, numbers.Integral):
        return str(int(value))
    if isinstance(value, numbers.Real):
        return repr(float(value))
    raise TypeError(f"keel.{kind.__name__}: expected {name} to be a number, got {value!r}")


def _text_of(kind: Any, *values: Any) -> str:
    fields = dict(zip(kind.__dataclass_fields__, values))
    inside = ", ".join([f"{name}={_number(kind, name, value)}" for name, value in fields.items()])
    try:
        return checked(kind._kind, f"{kind._name}({inside})")
    except ValueError as error:
        # In the words of the caller, who wrote no text: without the text and the place in it.
        wrong = re.match(r'keel::\w+: (expected (\w+) .*), got ".*?" at character ', str(error))
        if wrong is None or wrong.group(2) not in fields:
            raise
        said = wrong.group(1).replace(" or off", " or None").replace("true or false", "True or False")
        raise ValueError(f"keel.{kind.__name__}: {said}, got {fields[wrong.group(2)]!r}") from None


# Lets torch.compile create a rule inside a graph. torch.compiler.assume_constant_result does no more than this, but
# importing the compiler takes longer than all of keel.
_text_of._dynamo_marked_constant = True  # type: ignore[attr-defined]


class _Term:
    """A value that can be written as a string: name(field=value, ...)."""

    __dataclass_fields__: ClassVar[Dict[str, Any]]
    _name: ClassVar[str]
    _kind: ClassVar[str] = "spectral_rule"
    _text: str

    def __post_init__(self) -> None:
        values = tuple([getattr(self, name) for name in self.__dataclass_fields__])
        text = _text_of(type(self), *values)
        object.__setattr__(self, "_text", text)

    def __str__(self) -> str:
        return self._text


@dataclass(frozen=True)
class Analytic(_Term):
    """The textbook rule, which divides by l_i - l_j, the difference of two eigenvalues. Infinite or NaN at repeated
    ones."""

    _name = "analytic"


@dataclass(frozen=True)
class PowerIteration(_Term):
    """The rule of Wang et al. (NeurIPS 2019): the first ``terms`` terms of the geometric series of 1 / (l_i - l_j)
    that power iteration with deflation produces. At most terms / abs(l), where l is the pair's eigenvalue of larger
    magnitude. Biased for close pairs."""

    _name = "power_iteration"
    terms: int = 19


@dataclass(frozen=True)
class Taylor(_Term):
    """The same series as :class:`PowerIteration`, with the same number of terms for both eigenvectors of a pair. It is
    closer to the true derivative for the same ``terms``."""

    _name = "taylor"
    terms: int = 9


@dataclass(frozen=True)
class Lorentzian(_Term):
    """Replaces 1 / gap by gap / (gap^2 + w^2), with w = ``width`` * largest abs(eigenvalue)."""

    _name = "lorentzian"
    width: float = 1e-4


@dataclass(frozen=True)
class Masked(_Term):
    """The textbook rule without pairs closer than ``tolerance`` * largest abs(eigenvalue). The default tolerance, None,
    is 10 sqrt(n) machine epsilons. The rule is exact for losses that depend on a group of equal eigenvalues only as a
    whole (its projector, symmetric functions of its eigenvalues). For a function of the matrix, V f(l) V^T, use
    :class:`Exact`."""

    _name = "masked"
    tolerance: Optional[float] = None


@dataclass(frozen=True)
class Exact(_Term):
    """The exact derivative of a function of the matrix, finite at repeated eigenvalues. Between a kept and a dropped
    eigenvalue, where there may be no finite derivative, it uses ``terms`` terms of :class:`PowerIteration`'s series."""

    _name = "exact"
    terms: int = 19


class _Policy(_Term):
    _kind = "rank_policy"


@dataclass(frozen=True)
class FullRank(_Policy):
    """Keep every eigenvalue."""

    _name = "full"


@dataclass(frozen=True)
class LeadingCount(_Policy):
    """Keep the ``count`` largest eigenvalues, or all n if there are fewer."""

    _name = "leading_count"
    count: int = 1


@dataclass(frozen=True)
class LeadingEnergy(_Policy):
    """Keep the fewest leading eigenvalues whose sum reaches ``fraction`` of the total. Negative ones count as zero."""

    _name = "leading_energy"
    fraction: float = 0.99


@dataclass(frozen=True)
class LeadingReliable(_Policy):
    """Keep the leading eigenvalues that are reliable, as Algorithm 1 of Wang et al. (NeurIPS 2019) does. ``Algorithm1``
    is the same class. It walks down the spectrum and stops at the first eigenvalue that is not above ``eps``, or whose
    Rayleigh quotient on the deflated matrix (a second estimate of it) is off by a fraction ``rayleigh_tolerance`` or
    more, or once the eigenvalues so far hold a fraction ``energy`` of the sum. None switches a condition off.
    ``keep_reaching`` keeps the eigenvalue that reaches the energy, as the paper's text says; its pseudo-code drops it.

    An eigenvalue is above ``eps`` if it is so by more than rounding, 10 n machine epsilons of the largest. Those that
    are equal but for rounding to the one that reaches the energy are kept or dropped with it. ``literal`` compares
    without these margins, as the paper's algorithm is written."""

    _name = "leading_reliable"
    eps: Optional[float] = 1e-4
    rayleigh_tolerance: Optional[float] = 0.1
    energy: Optional[float] = 1.0 - 1e-4
    keep_reaching: bool = True
    literal: bool = False


Algorithm1 = LeadingReliable

GradientRule = Union[Analytic, PowerIteration, Taylor, Lorentzian, Masked]
SpectralRule = Union[Exact, GradientRule]
RankPolicy = Union[FullRank, LeadingCount, LeadingEnergy, LeadingReliable]

# The members of these unions, for isinstance-like checks.
GRADIENT_RULES, SPECTRAL_RULES, RANK_POLICIES = map(
    get_args, (GradientRule, SpectralRule, RankPolicy)
)


def written(operation: str, what: str, kinds: Tuple[Any, ...], value: Any) -> str:
    """The string of a value of one of those ``kinds``. A string is returned unchanged."""
    if isinstance(value, str):
        if kinds is not GRADIENT_RULES and not is_compiling():  # the operators check it too, by their own names
            _checked_by(operation, kinds, value)
        return value
    value = _policy_of(operation, what, kinds, value)
    if type(value) in kinds:
        return value._text
    names = ", ".join(kind.__name__ for kind in kinds)
    raise TypeError(f"{operation}: expected {what} to be one of {names}, got {value!r}{_hint(kinds, value)}")


def _policy_of(operation: str, what: str, kinds: Tuple[Any, ...], value: Any) -> Any:
    """The rank policy that a whole number stands for. Other values are returned unchanged."""
    if LeadingCount not in kinds or isinstance(value, bool) or not isinstance(value, numbers.Integral):
        return value
    return LeadingCount(whole(operation, what, value, 1))


def _hint(kinds: Tuple[Any, ...], value: Any) -> str:
    """A guess at what the user meant by a value that is none of those ``kinds``."""
    if isinstance(value, type):
        return f"; did you mean {value.__name__}()?"
    if isinstance(value, Exact):
        return "; Exact is for functions of a matrix, such as keel.sqrtm"
    return ""


def _checked_by(operation: str, kinds: Tuple[Any, ...], text: str) -> str:
    try:
        return checked(kinds[0]._kind, text)
    except ValueError as error:
        raise ValueError(re.sub(r"^keel::\w+", operation, str(error))) from None


def value_of(operation: str, what: str, kinds: Tuple[Any, ...], given: Any) -> Any:
    """A value of one of those ``kinds``, parsed if it is given as a string."""
    text = written(operation, what, kinds, given)
    if not isinstance(given, str):
        return _policy_of(operation, what, kinds, given)
    name, _, inside = _checked_by(operation, kinds, text).rstrip(")").partition("(")
    fields = dict(field.split("=") for field in inside.split(", ") if field)
    kind = next(kind for kind in kinds if kind._name == name)
    return kind(**{field: _read(value) for field, value in fields.items()})


def _read(value: str) -> Any:
    constants = {"off": None, "true": True, "false": False}
    if value in constants:
        return constants[value]
    return float(value) if any(c in value for c in ".e") else int(value)
