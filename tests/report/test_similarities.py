from congruence.align import _pair_section


def test_measures_asked_for_are_among_the_further_numbers(make_pair):
    values = {"svcca": 0.1234, "procrustes": 0.5678, "cka": 0.98}
    facts = {what: (value, meaning) for what, value, meaning in _pair_section._facts(make_pair(similarities=values))}
    assert facts["SVCCA"][0] == 0.1234
    assert "higher is closer" in facts["SVCCA"][1]
    assert facts["Procrustes distance"][0] == 0.5678
    assert "lower is closer" in facts["Procrustes distance"][1]
    assert [what for what in facts if "CKA" in what] == ["CKA"]  # which is there anyway
    assert "SVCCA" not in str(_pair_section._facts(make_pair()))
