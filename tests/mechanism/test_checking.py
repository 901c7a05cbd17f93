"""`check` on generators whose verdicts are known by hand, and what it says of others."""

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

torch = pytest.importorskip("torch")
from congruence.mechanism import check  # noqa: E402
from congruence.mechanism.criteria import block_orthogonality, disjoint_parts  # noqa: E402
from congruence.mechanism.derivatives import jacobians  # noqa: E402
from congruence.mechanism.sparsity_gap import sparse_decomposition  # noqa: E402

KNOWN = json.loads((Path(__file__).parents[1] / "oracles" / "mechanistic" / "analytic.json").read_text())
IDS = [known["id"] for known in KNOWN]
STATUS = {True: "holds", False: "fails"}


def blocks_of(known):
    return [[int(a) - 1 for a in part.split(",")] for part in known["partition"].strip("{}").split("},{")]


@pytest.mark.parametrize("known", KNOWN, ids=IDS)
def test_the_verdicts_on_analytic_generators_are_those_by_hand(generators, known):
    found = check(generators[known["id"]], np.array(known["sample_points"]), blocks_of(known))
    names = {"D": "D", "M_coordinate": "M_coord", "M_sparsest_basis": "M_sparsest", "S": "S", "H2": "H2", "H3": "H3"}
    names["IMA"] = "IMA"
    assert {ours: found[ours].status for ours in names.values()} == {
        ours: STATUS[known[theirs]] for theirs, ours in names.items()
    }
    assert found.rho == (known["rho_plus"], known["rho_minus"])
    assert [one.rank == one.expected for one in found.separable] == [
        known["separable_order2"][0],
        known["separable_order3"][0],
    ]
    irreducible = {one.criterion: one.status for one in found.irreducible}
    if known["D_irreducible"] is not None:
        assert irreducible["D"] == STATUS[known["D_irreducible"]]


@pytest.mark.parametrize("known", KNOWN, ids=IDS)
def test_contrasts_and_finest_parts_of_analytic_generators_are_those_by_hand(generators, known):
    blocks = tuple(map(tuple, blocks_of(known)))
    points = jacobians(generators[known["id"]], np.array(known["sample_points"]))
    contrasts = [block_orthogonality(j, blocks).contrast for j in points]
    assert_allclose(contrasts, known["ima_block_contrast"], atol=1e-9)
    for j in points:
        exact = np.where(np.abs(j) > 1e-9 * np.abs(j).max(), j, 0.0)
        assert disjoint_parts(exact, tuple(range(known["d"]))) == len(known["finest_D_block_dims"])
        dims = sorted(part.shape[1] for part in sparse_decomposition(exact))
        assert dims == sorted(known["finest_S_block_dims"])
