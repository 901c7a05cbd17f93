"""The page on mixture priors: the answer first, the row of the hierarchy marked, matrices of pairs."""

import json


def marked(page):
    """The number of the marked row, or None."""
    return page.partition('class="lit"')[2].partition("<bdi>")[2][:1] or None


def test_the_answer_comes_first_and_the_row_is_marked(make_assumptions, make_mixture, render):
    page = render(make_mixture(*[make_assumptions(P3="unknown", F4="fails") for _ in range(2)]))
    assert "The prior is identified up to permutation, scaling and translation in every run." in page
    assert marked(page) == "3"
    assert page.count('class="lit"') == 1
    assert "The outputs of the latents (1.00, 2.00) and (−1.00, 0.500) differ by 1.0e−12." in page
    assert "One note." in page
    assert "run&lt;1&gt;" in page
    assert "run<1>" not in page
    assert "do it" in page


def test_runs_that_differ_are_counted(make_assumptions, make_mixture, render):
    result = make_mixture(make_assumptions(), make_assumptions(F2="unknown", F4="unknown"))
    page = render(result)
    assert "holds in 1 of 2" in page
    assert "No theorem is known to apply in every run." in page
    assert marked(page) is None
    assert "Of the rows of Table 1, the 2 runs reach: none in 1, row 4 in 1." in page
    assert (result.status, result["run<0>", "identified"].status) == ("ambiguous", "holds")


def test_the_common_row_is_one_that_every_run_reaches(make_assumptions, make_mixture, render):
    result = make_mixture(make_assumptions(P2="fails", P3="unknown"), make_assumptions(F4="fails"))
    assert [one.row for one in result.checked.values()] == [2, 4]
    assert result.headlines[0] == "The prior is identified up to an affine map in every run."
    assert result.identified["P(Z)"] == "up to an affine map"
    assert marked(render(result)) == "1"
    partly = make_mixture(make_assumptions(P2="fails", P3="unknown"), None)
    assert partly.headlines[0] == (
        "The prior and the decoder are identified up to an affine map in every run that was checked."
    )


def test_constant_codes_have_no_mcc(make_assumptions, make_mixture, render_figures):
    still = make_mixture(make_assumptions(), make_assumptions(), matrix=((0.0, 0.0), (0.0, 0.0)), priors=False)
    assert "The codes do not vary, so they have no MCC." in render_figures(still)


def test_nothing_is_promised_where_nothing_is_known(make_assumptions, make_mixture, render):
    unknown = [make_assumptions(F2="unknown", F4="unknown") for _ in range(2)]
    assert "No theorem is known to apply." in render(make_mixture(*unknown))
    different = make_mixture(make_assumptions(P1="unknown"), make_assumptions(F2="fails", F4="fails"))
    assert different.headlines[1] == "None of the 2 runs is known to satisfy P1, F1 and F2 together."
    unchecked = make_mixture(None, None)
    assert unchecked.status == "unknown"
    assert unchecked.headlines[0] == "The assumptions were not checked."
    assert "Which row of the hierarchy" not in render(unchecked)


def test_one_run_has_no_matrices(make_assumptions, make_mixture, render):
    page = render(make_mixture(make_assumptions()))
    assert "The prior and the hidden states are identified" in page
    assert "Affine distance of the priors" not in page


def test_matrices_hold_the_pairs(make_mixture, render_figures):
    page = render_figures(make_mixture(None, None, None))
    assert page.count('title="run&lt;0&gt; to run&lt;1&gt;"') == 3
    assert "Weak MCC, held out" in page


def test_json_holds_what_the_page_says(make_assumptions, make_mixture):
    read = json.loads(make_mixture(make_assumptions(F4="fails"), make_assumptions()).to_json())
    assert (read["numbers"]["row"], read["numbers"]["identified"]["P(Z)"]) == (
        4,
        "up to permutation, scaling and translation",
    )
    first = read["numbers"]["runs"][0]["assumptions"]["conditions"][-1]
    assert (first["name"], first["status"], first["exact"]) == ("F4", "fails", True)
    assert first["pair"]["second"] == [-1.0, 0.5]
    assert read["numbers"]["agreement"]["over_pairs"]["weak"]["pairs"] == 2
