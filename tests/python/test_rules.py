"""Rules and rank policies: values, and what operators are told."""

import dataclasses
import math
import pickle

import pytest

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


def test_wrong_kinds_are_errors_that_name_what_came():
    with pytest.raises(TypeError, match=r"here: expected rule .*Masked.*got 'masked'"):
        rules.encode_rule("here", "masked")
    with pytest.raises(TypeError, match=r"an instance: Exact\(\)"):
        rules.encode_rule("here", keel.Exact)
    with pytest.raises(TypeError, match=r"keel.eigh: expected rule .*got Exact"):
        rules.encode_rule("keel.eigh", keel.Exact(), with_exact=False)
    with pytest.raises(TypeError, match="here: expected rank .*got 3"):
        rules.encode_rank("here", 3)
