"""The page on mixture priors: the answer first, the row of the hierarchy lit, matrices of pairs."""

import numpy as np
import pytest

from congruence.mixture import GaussianMixture
from congruence.mixture.agreement import LatentSpace, agreement
from congruence.mixture.examination import Examined, MixtureExamination
from congruence.mixture.hierarchy import Assumptions
from congruence.mixture.theorems import rows, theorems
from congruence.mixture.verdicts import Condition, Counterexample
from congruence.report import render_mixture, write_mixture_report

PRIOR = GaussianMixture.from_arrays([0.5, 0.5], [[0.0, 0.0], [3.0, 1.0]], [[1.0, 0.3], [0.2, 0.4]])
NAMES = ("P1", "P2", "P3", "F1", "F2", "F3", "F4")
PAIR = Counterexample(np.array([1.0, 2.0]), np.array([-1.0, 0.5]), 1e-12, 2.5)


def assumed(**statuses):
    found = {name: Condition(name, statuses.get(name, "holds"), f"Evidence on {name}.", "supported") for name in NAMES}
    if statuses.get("F4") == "fails":
        found["F4"] = Condition("F4", "fails", "Two meet.", "certified", PAIR)
    return Assumptions(found, theorems(found), rows(found), None, None, None, "known", "", ("Noted.",))


def examination(*found, matrix=((2.0, 0.3), (0.0, 1.0)), priors=True):
    z = PRIOR.sample(80)
    matrix = np.array(matrix)
    moved = [np.linalg.matrix_power(matrix, i) for i in range(len(found))]
    spaces = [LatentSpace(f"run<{i}>", z @ one.T, PRIOR.pushed(one) if priors else None) for i, one in enumerate(moved)]
    runs = tuple(Examined(one.name, "vade", 2, 2.0, a) for one, a in zip(spaces, found, strict=True))
    together = agreement(spaces) if len(spaces) > 1 else None
    return MixtureExamination(
        runs,
        together,
        tuple(spaces),
        spaces[0].states,
        "the factor arm",
        ("one note",),
        {"seed": 0, "command": "do it"},
    )


def test_the_answer_comes_first_and_the_row_is_lit():
    page = render_mixture(examination(assumed(P3="unknown", F4="fails"), assumed(P3="unknown", F4="fails")))
    assert "identified up to permutation, scaling and translation in every run; codes of two runs" in page
    assert '<th scope="row">3' in page[page.index('class="lit"') :][:80]
    assert page.count('class="lit"') == 1
    assert "The latents (1.00, 2.00) and (−1.00, 0.500) give outputs 1.0e−12 apart." in page
    assert "One note." in page
    assert "Noted." in page
    assert "run&lt;1&gt;" in page
    assert "<bdi>run<" not in page
    assert "do it" in page


def test_runs_that_differ_are_told_apart():
    page = render_mixture(examination(assumed(), assumed(F2="unknown", F4="unknown")))
    assert "applies in 1 of 2" in page
    assert "No theorem is shown to apply in every run" in page
    assert 'class="lit"' not in page
    assert "row 0: 1, row 4: 1" in page


def test_what_every_run_reaches_is_not_the_least_of_what_each_does():
    page = render_mixture(examination(assumed(P2="fails", P3="unknown"), assumed(F4="fails")))  # rows 2 and 4
    assert "The prior is identified up to an affine map in every run; codes" in page
    assert '<th scope="row">1' in page[page.index('class="lit"') :][:80]
    page = render_mixture(examination(assumed(P2="fails", P3="unknown"), None))
    assert "Prior and decoder are identified up to an affine map in every run that was checked; codes" in page
    page = render_mixture(examination(assumed(), assumed(), matrix=((0.0, 0.0), (0.0, 0.0)), priors=False))
    assert "codes do not vary, so that there is no MCC" in page


def test_nothing_is_promised_where_nothing_is_known():
    page = render_mixture(examination(assumed(F2="unknown", F4="unknown"), assumed(F2="unknown", F4="unknown")))
    assert "No theorem is shown to apply; codes" in page
    unchecked = render_mixture(examination(None, None))
    assert "Codes of two runs agree" in unchecked
    assert "Which row of the hierarchy" not in unchecked


def test_one_run_has_no_matrices():
    page = render_mixture(examination(assumed()))
    assert "Prior and hidden states are identified" in page
    assert "Affine distance of the priors" not in page


def test_matrices_hold_the_pairs():
    found = examination(None, None, None)
    page = render_mixture(found)
    assert page.count('title="run&lt;0&gt; to run&lt;1&gt;"') == 3
    assert "Weak MCC, held out" in page


@pytest.mark.parametrize("count", [1, 3])
def test_the_same_input_gives_the_same_bytes(count, tmp_path):
    for name in ("a", "b"):
        write_mixture_report(examination(*[None] * count), tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
