from congruence.align import _sections
from congruence.align.similarities import SimilarityScore


def test_measures_asked_for_are_among_the_further_numbers(make_pair):
    numbers = {"svcca": 0.1234, "procrustes": 0.5678, "cka": 0.98}
    values = {name: SimilarityScore(value, 0.2, 0.5, 0.005) for name, value in numbers.items()}
    facts = {what: (value, meaning) for what, value, meaning in _sections._facts(make_pair(similarities=values))}
    assert (facts["SVCCA"][0].text, facts["SVCCA"][0].below) == ("0.123", "null 0.200, p 0.00500")
    assert "higher is closer" in facts["SVCCA"][1]
    assert facts["Procrustes distance"][0].value == 0.5678
    assert "lower is closer" in facts["Procrustes distance"][1]
    assert [what for what in facts if "CKA" in what] == ["CKA"]  # which is there anyway
    assert "SVCCA" not in str(_sections._facts(make_pair()))
