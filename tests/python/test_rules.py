"""Rules and rank policies: values, and what operators are told."""

import dataclasses
import math
import pickle

import pytest
import torch

import keel
from keel import rules

EVERY_RULE = [
    (keel.Analytic(), "analytic"),
    (keel.PowerIteration(), "power_iteration(terms=19)"),
    (keel.Taylor(), "taylor(terms=9)"),
    (keel.Lorentzian(), "lorentzian(width=1e-04)"),
    (keel.Masked(), "masked"),
    (keel.Masked(1e-3), "masked(tolerance=0.001)"),
    (keel.Exact(5), "exact(terms=5)"),
]
EVERY_RANK = [
    (keel.FullRank(), "full"),
    (keel.LeadingCount(3), "leading_count(count=3)"),
    (keel.LeadingEnergy(0.9), "leading_energy(fraction=0.9)"),
    (
        keel.LeadingReliable(),
        "leading_reliable(eps=1e-04, rayleigh_tolerance=0.1, energy=0.9999, keep_reaching=true, literal=false)",
    ),
    (
        keel.Algorithm1(None, 0.2, None, False, True),
        "leading_reliable(eps=off, rayleigh_tolerance=0.2, energy=off, keep_reaching=false, literal=true)",
    ),
]


@pytest.mark.parametrize("value, text", EVERY_RULE + EVERY_RANK)
def test_values_are_frozen_comparable_and_have_a_text(value, text):
    assert str(value) == text
    assert value == dataclasses.replace(value) == pickle.loads(pickle.dumps(value))
    assert hash(value) == hash(dataclasses.replace(value))
    with pytest.raises(dataclasses.FrozenInstanceError):
        value.terms = 3


@pytest.mark.parametrize("value, text", EVERY_RULE + EVERY_RANK)
def test_texts_are_values(value, text):
    kinds = rules.RANK_POLICIES if value._kind == "rank_policy" else rules.SPECTRAL_RULES
    assert rules.value_of("here", "it", kinds, text) == value
    assert rules.value_of("here", "it", kinds, value) is value
    assert rules.value_of("here", "it", kinds, value._name) == type(value)()
    with pytest.raises(ValueError, match="expected the end"):
        rules.value_of("here", "it", kinds, text + " more")


@pytest.mark.parametrize(
    "kind, kinds", [("spectral_rule", rules.SPECTRAL_RULES), ("rank_policy", rules.RANK_POLICIES)]
)
def test_python_has_a_value_for_everything_the_core_knows(kind, kinds):
    with pytest.raises(ValueError) as error:
        rules.checked(kind, "nothing")
    known = str(error.value).split("expected ")[1].split(", got")[0].replace(" or ", ", ").split(", ")
    assert sorted(known) == sorted(each._name for each in kinds)
    for each in kinds:
        assert str(each()) == rules.checked(kind, each._name), "defaults differ"


def test_numbers_survive_to_the_last_bit():
    for number in (0.1 + 0.2, 5e-324, 1.7976931348623157e308, 1 / 3):
        assert rules.value_of("here", "rule", rules.SPECTRAL_RULES, str(keel.Lorentzian(number))).width == number


def test_functions_and_layers_take_texts():
    m = torch.diag(torch.tensor([4.0, 1.0, 0.25]))
    by_text, kept = keel.spectral(m, "inv_sqrt", rank="leading_count(count=2)", rule="taylor", return_kept=True)
    by_value = keel.spectral(m, "inv_sqrt", rank=keel.LeadingCount(2), rule=keel.Taylor())
    assert torch.equal(by_text, by_value) and int(kept) == 2
    assert torch.equal(keel.projector(m, "leading_count"), keel.projector(m, keel.LeadingCount(1)))
    assert keel.eigh(m, "masked(tolerance=0.1)").eigenvalues.tolist() == [0.25, 1.0, 4.0]
    layer = keel.nn.ZcaWhitening(4, rule="power_iteration(terms=5)", rank="full")
    assert layer.rule == keel.PowerIteration(5) and layer.rank == keel.FullRank()
    assert layer(torch.randn(20, 4)).isfinite().all()


WHOLE = [
    (keel.PowerIteration, "terms"),
    (keel.Taylor, "terms"),
    (keel.Exact, "terms"),
    (keel.LeadingCount, "count"),
]
REAL = [
    (keel.Lorentzian, "width"),
    (keel.Masked, "tolerance"),
    (keel.LeadingEnergy, "fraction"),
    (keel.Algorithm1, "eps"),
    (keel.Algorithm1, "rayleigh_tolerance"),
    (keel.Algorithm1, "energy"),
]


@pytest.mark.parametrize("kind, field", WHOLE)
@pytest.mark.parametrize("value", [5.0, 2.5, True, math.nan, None, 2**63])
def test_what_is_no_whole_number_is_an_error(kind, field, value):
    with pytest.raises(ValueError, match=f"keel.{kind.__name__}: expected {field} to be a whole number.*got {value}$"):
        kind(**{field: value})


@pytest.mark.parametrize("kind, field", WHOLE)
def test_whole_numbers_have_a_range(kind, field):
    for value in (0, -1):
        words = f"keel.{kind.__name__}: expected {field} to be .* from 1 to .*got {value}$"
        with pytest.raises(ValueError, match=words):
            kind(**{field: value})
    kind(**{field: 7})
    if field == "terms":
        with pytest.raises(ValueError, match="to 2147483647"):
            kind(2**31)


@pytest.mark.parametrize("kind, field", WHOLE + REAL)
@pytest.mark.parametrize("value", ["0.5", torch.tensor(0.5), 1j])
def test_what_is_no_number_is_an_error(kind, field, value):
    with pytest.raises(TypeError, match=f"keel.{kind.__name__}: expected {field} to be a number"):
        kind(**{field: value})


@pytest.mark.parametrize("kind, field", REAL)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -0.5, True])
def test_numbers_have_a_range(kind, field, value):
    with pytest.raises(ValueError, match=f"keel.{kind.__name__}: expected {field} to be a .*number.*got {value}$"):
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
    with pytest.raises(ValueError, match="keep_reaching to be True or False, got 1$"):
        keel.Algorithm1(keep_reaching=1)
    with pytest.raises(ValueError, match="literal to be True or False, got 0$"):
        keel.Algorithm1(literal=0)


def test_a_wrong_rule_gets_the_list_of_all_that_would_do():
    every = ["Analytic", "PowerIteration", "Taylor", "Lorentzian", "Masked", "Exact"]
    with pytest.raises(TypeError) as error:
        keel.nn.ZcaWhitening(4, rule=keel.Exact)
    assert all(name in str(error.value) for name in every)
    with pytest.raises(TypeError) as error:
        keel.sqrtm(torch.eye(2), keel.FullRank())
    assert all(name in str(error.value) for name in every)


def test_wrong_kinds_are_errors_that_name_what_came():
    with pytest.raises(TypeError, match=r"keel.eigh: expected rule .*Masked.*got Exact\(terms=19\); .*keel.sqrtm"):
        keel.eigh(torch.eye(2), keel.Exact())
    with pytest.raises(TypeError, match=r"did you mean Exact\(\)\?"):
        keel.sqrtm(torch.eye(2), keel.Exact)
    for wrong in (True, 2.0, None):
        with pytest.raises(TypeError, match=f"keel.projector: expected rank .*got {wrong}"):
            keel.projector(torch.eye(2), wrong)
    with pytest.raises(ValueError, match="keel::eigh: expected analytic, .*got .magic"):
        keel.eigh(torch.eye(2), "magic")


def test_a_whole_number_is_a_leading_count():
    m = torch.diag(torch.tensor([3.0, 2.0, 1.0]))
    for two in (2, keel.LeadingCount(2)):
        assert torch.equal(keel.projector(m, two), torch.diag(torch.tensor([1.0, 1.0, 0.0])))
        assert int(keel.spectral(m, "sqrt", rank=two, return_kept=True)[1]) == 2
        assert torch.equal(keel.low_rank(m, two).diagonal(), torch.tensor([3.0, 2.0, 0.0]))
        layer = keel.nn.ZcaWhitening(4, rank=two)
        assert layer.rank == keel.LeadingCount(2)
    with pytest.raises(ValueError, match="keel.projector: expected rank >= 1, got 0"):
        keel.projector(m, 0)
    with pytest.raises(ValueError, match="keel.nn.ZcaWhitening: expected rank >= 1, got -1"):
        keel.nn.ZcaWhitening(4, rank=-1)


def test_errors_are_in_the_words_of_the_caller():
    for call, words in (
        (lambda: keel.PowerIteration(0), "keel.PowerIteration: expected terms to be a whole number from 1"),
        (lambda: keel.Lorentzian(-1.0), "keel.Lorentzian: expected width to be a finite number > 0, got -1"),
        (lambda: keel.nn.ZcaWhitening(4, eps=-1), "keel.nn.ZcaWhitening: expected eps >= 0, got -1"),
        (lambda: keel.eigh(torch.eye(2), "power_iteration(19)"), 'expected terms=..., got "19"'),
        (lambda: keel.sqrtm(torch.eye(2, dtype=torch.int)), "keel::sqrtm: expected float16, bfloat16"),
        (lambda: keel.powm(torch.ones(2, 3), 2), "keel::powm: expected (..., n, n), got (2, 3)"),
        (lambda: keel.projector(torch.ones(3), 1), "keel::projector: expected (..., n, n), got (3)"),
        (lambda: keel.svd(torch.eye(2), full_matrices=True), "keel.svd: expected full_matrices=False"),
        (lambda: keel.svd(torch.eye(2), False), "keel.svd: expected full_matrices=False, by name"),
        (lambda: keel.LeadingCount(0), "keel.LeadingCount: expected count to be a whole number from 1"),
        (lambda: keel.Algorithm1(eps=-1), "keel.LeadingReliable: expected eps to be a finite number >= 0 or None, got"),
        (lambda: keel.nn.ZcaWhitening(4, rule="exac"), "keel.nn.ZcaWhitening: expected exact, analytic"),
        (lambda: keel.sqrtm([[1.0]]), "keel.sqrtm: expected a tensor, got list"),
        (lambda: keel.kabsch(torch.eye(3), 1), "keel.kabsch: expected a tensor, got int"),
        (lambda: keel.kabsch(torch.ones(3), torch.ones(3)), "keel::kabsch: expected points (..., N, d), got (3)"),
        (lambda: keel.kabsch(torch.eye(3), torch.eye(3), torch.ones(3).to_sparse()), "keel::kabsch: expected a dense"),
        (lambda: keel.spectral(torch.eye(2), 2), "keel.spectral: expected function to be a text such as 'exp', or ca"),
        (lambda: keel.singular(torch.eye(2), "one", exponent=2), "keel.singular: expected an exponent only with"),
        (lambda: keel.singular(torch.eye(2), "soft_threshold"),
         "keel.singular: expected 'soft_threshold(threshold=...)', got 'soft_threshold'"),
        (lambda: keel.pinv(torch.eye(2), rtol=-1), "keel.pinv: expected rtol >= 0, got -1"),
        (lambda: keel.soft_threshold(torch.eye(2), -1), "keel.soft_threshold: expected threshold >= 0, got -1"),
        (lambda: torch.ops.keel.soft_threshold(torch.eye(2), -1),
         "keel::soft_threshold: expected a finite threshold >= 0, got -1"),
        (lambda: torch.ops.keel.pinv(torch.eye(2), float("nan")), "keel::pinv: expected a finite rtol >= 0, got nan"),
        (lambda: keel.low_rank(torch.eye(2), "algorithm1"), "keel::low_rank: expected rank full, leading_count or"),
    ):
        with pytest.raises((TypeError, ValueError, RuntimeError)) as error:
            call()
        assert str(error.value).startswith(words) or words.startswith("expected") and words in str(error.value)


@pytest.mark.parametrize("call, said", [
    (lambda m: keel.sqrtm(m, "U"), "keel.sqrtm: expected exact, "),
    (lambda m: keel.powm(m, 0.5, "U"), "keel.powm: expected exact, "),
    (lambda m: keel.projector(m, "U"), "keel.projector: expected full, "),
    (lambda m: keel.generalized_projector(m, m, "U"), "keel.generalized_projector: expected full, "),
    (lambda m: keel.generalized_eigh(m, torch.eye(4)), r"keel::generalized_eigh: .* B .* A \(3, 3\), got \(4, 4\)"),
    (lambda m: keel.svds(m, 1, tol=-1), "keel.svds: expected tol >= 0, got -1"),
    (lambda m: keel.eigh(m, descending="yes"), "keel.eigh: expected descending to be True or False, got 'yes'"),
    (lambda m: keel.nn.convert_batchnorm(torch.nn.BatchNorm1d(3), [""]), r"did you mean names=\[''\]"),
])  # fmt: skip
def test_mistakes_are_told_in_the_callers_words(call, said):
    with pytest.raises((TypeError, ValueError), match=said):
        call(torch.eye(3))
