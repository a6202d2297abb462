"""Rules and rank policies: values, and what operators are told."""

import dataclasses
import math
import pickle

import pytest
import torch

import keel
from keel import rules

EVERY_RULE = [
    (keel.Analytic(), ("analytic", None)),
    (keel.PowerIteration(), ("power_iteration", 19.0)),
    (keel.Taylor(), ("taylor", 9.0)),
    (keel.Lorentzian(), ("lorentzian", 1e-4)),
    (keel.Masked(), ("masked", None)),
    (keel.Masked(1e-3), ("masked", 1e-3)),
    (keel.Exact(5), ("exact", 5.0)),
]
EVERY_RANK = [
    (keel.FullRank(), ("full", [])),
    (keel.LeadingCount(3), ("leading_count", [3.0])),
    (keel.LeadingEnergy(0.9), ("leading_energy", [0.9])),
    (keel.Algorithm1(), ("algorithm1", [1e-4, 0.1, 1 - 1e-4, 1.0])),
]


@pytest.mark.parametrize("rule, encoded", EVERY_RULE)
def test_rules_are_frozen_comparable_and_encoded(rule, encoded):
    assert rules.encode_rule("here", rule) == encoded
    assert rule == dataclasses.replace(rule) == pickle.loads(pickle.dumps(rule))
    assert hash(rule) == hash(dataclasses.replace(rule))
    with pytest.raises(dataclasses.FrozenInstanceError):
        rule.terms = 3


@pytest.mark.parametrize("rank, encoded", EVERY_RANK)
def test_rank_policies_are_encoded(rank, encoded):
    assert rules.encode_rank("here", rank) == encoded


def test_a_condition_that_is_off_is_nan():
    numbers = rules.encode_rank("here", keel.Algorithm1(None, 0.2, None, False))[1]
    assert math.isnan(numbers[0]) and math.isnan(numbers[2])
    assert numbers[1] == 0.2 and numbers[3] == 0.0


WHOLE = [
    (keel.PowerIteration, "terms"),
    (keel.Taylor, "terms"),
    (keel.Exact, "terms"),
    (keel.LeadingCount, "count"),
    (keel.PowerMethod, "iterations"),
]
REAL = [
    (keel.Lorentzian, "width"),
    (keel.Masked, "tolerance"),
    (keel.LeadingEnergy, "fraction"),
    (keel.Algorithm1, "eps"),
    (keel.Algorithm1, "rayleigh_tolerance"),
    (keel.Algorithm1, "energy"),
]


@pytest.mark.parametrize("kind, field", WHOLE + [(keel.PowerMethod, "seed")])
@pytest.mark.parametrize("value", ["5", 5.0, 2.5, True, math.nan, torch.tensor(5), None])
def test_what_is_no_whole_number_is_an_error(kind, field, value):
    with pytest.raises(TypeError, match=f"keel.{kind.__name__}: expected {field} to be a whole number"):
        kind(**{field: value})


@pytest.mark.parametrize("kind, field", WHOLE)
def test_whole_numbers_have_a_range(kind, field):
    for value in (0, -1):
        with pytest.raises(ValueError, match=f"keel.{kind.__name__}: expected {field} >= 1.*{value}"):
            kind(**{field: value})
    kind(**{field: 7})
    if field == "terms":
        with pytest.raises(ValueError, match="<= 2147483647"):
            kind(2**31)


@pytest.mark.parametrize("kind, field", REAL)
@pytest.mark.parametrize("value", ["0.5", True, torch.tensor(0.5), 1j])
def test_what_is_no_number_is_an_error(kind, field, value):
    with pytest.raises(TypeError, match=f"keel.{kind.__name__}: expected {field} to be a number"):
        kind(**{field: value})


@pytest.mark.parametrize("kind, field", REAL)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -0.5])
def test_numbers_have_a_range(kind, field, value):
    with pytest.raises(ValueError, match=f"keel.{kind.__name__}: expected .*{field}.*got"):
        kind(**{field: value})
    kind(**{field: 1})


def test_ends_of_ranges():
    keel.Masked(0), keel.Algorithm1(eps=0)
    for bad in (
        lambda: keel.Lorentzian(0),
        lambda: keel.LeadingEnergy(0),
        lambda: keel.LeadingEnergy(1.5),
        lambda: keel.Algorithm1(rayleigh_tolerance=0),
        lambda: keel.Algorithm1(energy=0.0),
    ):
        with pytest.raises(ValueError):
            bad()
    with pytest.raises(TypeError, match="keep_reaching to be True or False, got 1"):
        keel.Algorithm1(keep_reaching=1)


def test_a_wrong_rule_gets_the_list_of_all_that_would_do():
    every = ["Analytic", "PowerIteration", "Taylor", "Lorentzian", "Masked", "Exact", "PowerMethod"]
    with pytest.raises(TypeError) as error:
        keel.nn.ZcaWhitening(4, rule="exact")
    assert all(name in str(error.value) for name in every)
    with pytest.raises(TypeError) as error:
        keel.sqrtm(torch.eye(2), keel.PowerMethod())
    assert all(name in str(error.value) for name in every[:-1])


def test_wrong_kinds_are_errors_that_name_what_came():
    with pytest.raises(TypeError, match=r"here: expected rule .*Masked.*got 'masked'"):
        rules.encode_rule("here", "masked")
    with pytest.raises(TypeError, match=r"an instance: Exact\(\)"):
        rules.encode_rule("here", keel.Exact)
    with pytest.raises(TypeError, match=r"keel.eigh: expected rule .*got Exact"):
        rules.encode_rule("keel.eigh", keel.Exact(), with_exact=False)
    with pytest.raises(TypeError, match="here: expected rank .*got 3"):
        rules.encode_rank("here", 3)
