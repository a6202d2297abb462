"""Gradient rules and rank policies: what the operators are told, as small frozen values.

They mirror the structs of the C++ headers ``keel/gradient_rule.h`` and ``keel/spectral.h``. What they
are made of is checked when they are made.
"""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from typing import Any, List, Optional, Tuple, Union

__all__ = [
    "Algorithm1",
    "Analytic",
    "Exact",
    "FullRank",
    "GradientRule",
    "LayerRule",
    "LeadingCount",
    "LeadingEnergy",
    "Lorentzian",
    "Masked",
    "PowerIteration",
    "PowerMethod",
    "RankPolicy",
    "SpectralRule",
    "Taylor",
]


_MOST_TERMS = 2**31 - 1


def whole(operation: str, name: str, value: Any, least: int, most: Optional[int] = None) -> int:
    """``value``, which must be a whole number of Python's or numpy's, no bool, in [least, most]."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{operation}: expected {name} to be a whole number, got {value!r}")
    if value < least or (most is not None and value > most):
        at_most = "" if most is None else f" and <= {most}"
        raise ValueError(f"{operation}: expected {name} >= {least}{at_most}, got {value}")
    return int(value)


def finite(operation: str, name: str, value: Any) -> float:
    """``value``, which must be a finite real number of Python's or numpy's, no bool."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{operation}: expected {name} to be a number, got {value!r}")
    if not math.isfinite(value):
        raise ValueError(f"{operation}: expected a finite {name}, got {value}")
    return float(value)


def _from_zero(operation: str, name: str, value: Any, open: bool = False) -> None:
    if finite(operation, name, value) < 0 or (open and value == 0):
        raise ValueError(f"{operation}: expected {name} {'>' if open else '>='} 0, got {value}")


def _fraction(operation: str, name: str, value: Any) -> None:
    if not 0 < finite(operation, name, value) <= 1:
        raise ValueError(f"{operation}: expected {name} in (0, 1], got {value}")


def flag(operation: str, name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"{operation}: expected {name} to be True or False, got {value!r}")


@dataclass(frozen=True)
class Analytic:
    """The textbook rule, with 1 / (l_i - l_j): infinite or NaN at repeated eigenvalues."""


@dataclass(frozen=True)
class PowerIteration:
    """The paper's rule: the first ``terms`` terms of the geometric series of 1 / (l_i - l_j) that
    power iteration with deflation produces. Bounded by terms / abs(l), biased for close pairs."""

    terms: int = 19

    def __post_init__(self) -> None:
        whole("keel.PowerIteration", "terms", self.terms, 1, _MOST_TERMS)


@dataclass(frozen=True)
class Taylor:
    """The same series with equally many terms on both sides of a pair (antisymmetric kernel)."""

    terms: int = 9

    def __post_init__(self) -> None:
        whole("keel.Taylor", "terms", self.terms, 1, _MOST_TERMS)


@dataclass(frozen=True)
class Lorentzian:
    """1 / gap replaced by gap / (gap^2 + w^2), with w = ``width`` * largest abs(eigenvalue)."""

    width: float = 1e-4

    def __post_init__(self) -> None:
        _from_zero("keel.Lorentzian", "width", self.width, open=True)


@dataclass(frozen=True)
class Masked:
    """The textbook rule without the pairs closer than ``tolerance`` * largest abs(eigenvalue):
    exact for losses that see a group of equal eigenvalues only as a whole (its projector, symmetric
    functions of its eigenvalues). What a function of the matrix, V f(l) V^T, has inside such a group is
    left out. None means 10 sqrt(n) machine epsilons."""

    tolerance: Optional[float] = None

    def __post_init__(self) -> None:
        if self.tolerance is not None:
            _from_zero("keel.Masked", "tolerance", self.tolerance)


@dataclass(frozen=True)
class Exact:
    """Divided differences of the function, finite at repeated eigenvalues. Between a kept and a
    dropped eigenvalue, where no finite value need exist, ``terms`` terms of the paper's series."""

    terms: int = 19

    def __post_init__(self) -> None:
        whole("keel.Exact", "terms", self.terms, 1, _MOST_TERMS)


@dataclass(frozen=True)
class PowerMethod:
    """The paper's baseline: power iteration from random starts, differentiated by unrolling.
    For layers only, and there to be measured against."""

    iterations: int = 19
    seed: int = 0

    def __post_init__(self) -> None:
        whole("keel.PowerMethod", "iterations", self.iterations, 1)
        whole("keel.PowerMethod", "seed", self.seed, -(2**63), 2**63 - 1)


@dataclass(frozen=True)
class FullRank:
    """Keep every eigenvalue."""


@dataclass(frozen=True)
class LeadingCount:
    """Keep the ``count`` leading eigenvalues (at most n)."""

    count: int = 1

    def __post_init__(self) -> None:
        whole("keel.LeadingCount", "count", self.count, 1)


@dataclass(frozen=True)
class LeadingEnergy:
    """Keep the fewest leading eigenvalues whose sum reaches ``fraction`` of the whole."""

    fraction: float = 0.99

    def __post_init__(self) -> None:
        _fraction("keel.LeadingEnergy", "fraction", self.fraction)


@dataclass(frozen=True)
class Algorithm1:
    """The paper's Algorithm 1: walk down the spectrum and stop at the first eigenvalue that is not
    above ``eps``, or whose Rayleigh quotient on the deflated matrix is off by
    ``rayleigh_tolerance`` or more, or once ``energy`` of the sum is reached. None switches a
    condition off. ``keep_reaching`` keeps the eigenvalue that reaches the energy, as the paper's
    text has it; its pseudo-code drops that one."""

    eps: Optional[float] = 1e-4
    rayleigh_tolerance: Optional[float] = 0.1
    energy: Optional[float] = 1.0 - 1e-4
    keep_reaching: bool = True

    def __post_init__(self) -> None:
        here = "keel.Algorithm1"
        if self.eps is not None:
            _from_zero(here, "eps", self.eps)
        if self.rayleigh_tolerance is not None:
            _from_zero(here, "rayleigh_tolerance", self.rayleigh_tolerance, open=True)
        if self.energy is not None:
            _fraction(here, "energy", self.energy)
        flag(here, "keep_reaching", self.keep_reaching)


GradientRule = Union[Analytic, PowerIteration, Taylor, Lorentzian, Masked]
SpectralRule = Union[Exact, GradientRule]
LayerRule = Union[SpectralRule, PowerMethod]
RankPolicy = Union[FullRank, LeadingCount, LeadingEnergy, Algorithm1]

_RULES = {
    Analytic: ("analytic", None),
    PowerIteration: ("power_iteration", "terms"),
    Taylor: ("taylor", "terms"),
    Lorentzian: ("lorentzian", "width"),
    Masked: ("masked", "tolerance"),
    Exact: ("exact", "terms"),
}


def _expected(operation: str, what: str, kinds: Tuple[type, ...], value: object) -> TypeError:
    names = ", ".join(kind.__name__ for kind in kinds)
    hint = f" (an instance: {value.__name__}())" if isinstance(value, type) else ""
    return TypeError(f"{operation}: expected {what} to be one of {names}, got {value!r}{hint}")


def encode_rule(
    operation: str, rule: SpectralRule, with_exact: bool = True, with_power_method: bool = False
) -> Tuple[str, Optional[float]]:
    """The rule as operators carry it: its name and its one number. PowerMethod has no such form; a
    layer takes it all the same, and says so in the list of what it takes."""
    if type(rule) not in _RULES or (isinstance(rule, Exact) and not with_exact):
        kinds = tuple(kind for kind in _RULES if with_exact or kind is not Exact)
        raise _expected(operation, "rule", kinds + (PowerMethod,) * with_power_method, rule)
    name, field = _RULES[type(rule)]
    value = None if field is None else getattr(rule, field)
    return name, None if value is None else float(value)


def encode_rank(operation: str, rank: RankPolicy) -> Tuple[str, List[float]]:
    """The policy as operators carry it: name and numbers, NaN for a condition that is off."""
    if isinstance(rank, FullRank):
        return "full", []
    if isinstance(rank, LeadingCount):
        return "leading_count", [float(rank.count)]
    if isinstance(rank, LeadingEnergy):
        return "leading_energy", [float(rank.fraction)]
    if isinstance(rank, Algorithm1):
        conditions = (rank.eps, rank.rayleigh_tolerance, rank.energy)
        return "algorithm1", [math.nan if c is None else float(c) for c in conditions] + [
            float(rank.keep_reaching)
        ]
    raise _expected(operation, "rank", (FullRank, LeadingCount, LeadingEnergy, Algorithm1), rank)
