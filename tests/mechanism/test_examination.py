"""`examine_mechanism`: blocks are checked or found, and the result has what every result has."""

import json
from importlib import import_module
from inspect import ismodule
from pkgutil import iter_modules

import numpy as np
import pytest

import congruence.mechanism
from congruence.errors import InputError, UnknownKeyError
from congruence.tables import Table

torch = pytest.importorskip("torch")
from congruence.mechanism import check_blocks, discover, examine_mechanism  # noqa: E402


@pytest.fixture
def z(rng):
    return rng.uniform(0.3, 1.2, size=(12, 4))


def test_given_blocks_are_checked(generators, z):
    result = examine_mechanism(generators["A10"], z, blocks=[[0], [1], [2, 3]])
    assert (result.blocks_from, result.discovery) == ("given", None)
    assert (result.status, result["identified"].basis) == ("unknown", "not refuted")
    assert result["identified"].evidence == "Open premises: none. Assumed: reconstruction, model_type."
    assert result.headlines[0] == (
        "If a model explains the same observations and is of Type D, Theorem 2 identifies the blocks 0,1,2-3 near the "
        "points: they act on disjoint outputs."
    )
    alone = check_blocks(generators["A10"], z, "0,1,2-3")
    assert [one.to_dict() for one in result.check.criteria] == [one.to_dict() for one in alone.criteria]


def test_blocks_are_found_where_none_are_given(generators, z):
    result = examine_mechanism(generators["A10"], z, types="D")
    assert (result.blocks_from, result.blocks_text) == ("D", "0,1,2-3")
    assert result.discovery["D"].dims == discover(generators["A10"], z, types=("D",))["D"].dims


def test_some_rows_are_drawn_with_the_seed(generators, z):
    first, again, all_ = (examine_mechanism(generators["A10"], z, blocks="0,1,2-3", points=p) for p in (5, 5, None))
    assert first.to_json() == again.to_json()
    assert (first.check.points, all_.check.points) == (5, 12)


def test_files_frames_tensors_and_tables_give_the_same(generators, z, tmp_path):
    pandas = pytest.importorskip("pandas")
    np.save(tmp_path / "z.npy", z)
    expected = examine_mechanism(generators["A10"], z, blocks="0,1,2-3", orders=(2,)).numbers()
    for given in (tmp_path / "z.npy", pandas.DataFrame(z), torch.as_tensor(z), Table(z, "z")):
        assert examine_mechanism(generators["A10"], given, blocks="0,1,2-3", orders=(2,)).numbers() == expected


def test_codes_of_a_model_are_joined_by_id(generators, z, rng):
    ids, order = np.array([f"r{i}" for i in range(12)]), rng.permutation(12)
    codes = Table(z[order][:, ::-1].copy(), "codes", ids=ids[order])
    result = examine_mechanism(
        generators["A10"],
        Table(z, "z", ids=ids),
        blocks="0,1,2-3",
        orders=(2,),
        model=lambda c: generators["A10"](c.flip(1)),
        codes=codes,
    )
    assert result["disentangled"].status == "holds"
    assert result.disentanglement.factor_of == (2, 2, 1, 0)
    assert result.disentanglement.misses.max() < 1e-9


def test_the_result_has_parts_rows_figure_and_text(generators, z):
    pytest.importorskip("matplotlib").use("agg")
    result = examine_mechanism(generators["A10"], z, blocks="0,1,2-3", orders=(2,))
    assert result["D"].margin == 0
    assert result["theorem2_D"].premises[0] == result["D"].finding
    assert [row["criterion"] for row in result.rows()] == ["D", "M_coord", "M_sparsest", "S", "H2", "IMA"]
    assert result.plot().get_title() == "Latents that move a common output"
    assert "Criteria for the blocks 0,1,2-3, 12 points" in str(result)
    written = json.loads(result.to_json())
    assert written["numbers"]["check"]["theorems"][0]["conditional"]
    assert written["numbers"]["parts"]["longest"]["parts"] == 3
    with pytest.raises(UnknownKeyError, match="there is no 'T'"):
        result["T"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"points": 0}, "points must be an integer of at least 1; got 0"),
        ({"codes": np.zeros((12, 4))}, "codes require model, the decoder of the model"),
        ({"orders": (1,)}, "orders must be an integer of at least 2; got 1"),
        ({"orders": (2.5,)}, "orders must be an integer of at least 2; got 2.5"),
        ({"model": lambda c: c, "codes": np.zeros((3, 4))}, "codes must have a row for each of 12 rows of latents"),
    ],
)
def test_what_cannot_be_done_is_refused_with_its_reason(generators, z, arguments, message):
    with pytest.raises(InputError, match=message):
        examine_mechanism(generators["A10"], z, **arguments)


def test_a_model_that_fulfils_the_premises_is_identified(generators, z):
    result = examine_mechanism(
        generators["A10"],
        z,
        blocks="0,1,2-3",
        orders=(2,),
        model=lambda c: generators["A10"](c.flip(1)),
        codes=z[:, ::-1],
    )
    assert (result["identified"].status, result["disentangled"].status) == ("holds", "holds")
    assert result.strongest.assumed == ()
    assert "and the model fulfils its premises as well" in result.headlines[0]
    assert result.model_check["D"].status == "holds"
    assert result.numbers()["model_check"]["blocks"] == [[3], [2], [0, 1]]


def test_an_entangled_model_that_reconstructs_exactly_is_not_identified(generators, z):
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(4, 4)))[0]
    generator = generators["A10"]
    result = examine_mechanism(
        generator,
        z,
        blocks="0,1,2-3",
        orders=(2,),
        model=lambda c: generator(c @ torch.as_tensor(turn.T)),
        codes=z @ turn,
    )
    assert result.disentanglement.misses.max() < 1e-9
    assert result["disentangled"].status == "fails"
    assert (result["identified"].status, result["identified"].basis) == ("unknown", "premise fails")
    assert not any(one.status == "holds" for one in result.check.theorems)
    assert result.headlines[:2] == (
        "No theorem identifies the blocks 0,1,2-3 in this model.",
        "This premise of Theorem 2 fails: “The model is of Type D as well, in blocks of its codes.”",
    )
    assert result["D"].status == "holds"


def test_a_model_that_misses_the_observations_is_not_identified(generators, z):
    generator = generators["A10"]
    result = examine_mechanism(
        generator, z, blocks="0,1,2-3", orders=(2,), model=lambda c: generator(c) + 0.02 * c[:, :1].sin(), codes=z
    )
    premises = {one.name: one.status for one in result["theorem2_D"].premises}
    assert premises["reconstruction"] == "unknown"
    assert result["identified"].status != "holds"


def test_the_parts_of_a_decoder_without_exact_zeros_are_those_of_a_range_of_tolerances(generators):
    noise = torch.randn(7, 4, generator=torch.Generator().manual_seed(0)).double()
    z = np.random.default_rng(0).uniform(0.3, 1.2, size=(10, 4))
    nearly = examine_mechanism(
        lambda s: generators["A10"](s) + 0.003 * torch.tanh(s @ noise.T), z, blocks="0,1,2-3", orders=(2,)
    )
    assert {one.status for one in nearly.check.criteria} == {"fails"}
    parts, low, high = nearly.curve.longest
    assert parts == 3
    assert 1e-4 < low < high
    assert nearly["D"].typical < 0.01 * nearly["D"].null
    assert nearly.curve.sentence in nearly.verdict
    weight = torch.randn(24, 4, generator=torch.Generator().manual_seed(0)).double()
    dense = examine_mechanism(lambda s: torch.tanh(s @ weight.T), z, blocks="0,1,2-3", orders=(2,))
    assert dense.curve.longest is None
    assert dense.curve.parts[0] == 1


def test_a_criterion_and_a_theorem_are_looked_up_in_one_way(generators, z):
    result = examine_mechanism(generators["A10"], z, blocks="0,1,2-3", orders=(2,))
    for name in ("D", "theorem2_D"):
        assert result[name] == result.check[name]
        assert result[name].status in ("holds", "unknown")
        assert result[name].claim
    assert "D" in result


@pytest.mark.parametrize("room", ["congruence.mechanism", "congruence.decoder"])
def test_no_listed_name_is_a_module(room):
    package = import_module(room)
    for module in iter_modules(package.__path__):
        import_module(f"{room}.{module.name}")
    assert not [name for name in package.__all__ if ismodule(getattr(package, name))]
    assert callable(congruence.mechanism.finest_additive)
    assert callable(congruence.mechanism.finest_disjoint)


def test_a_large_tolerance_leaves_one_part_where_every_output_is_faint(rng):
    weights = torch.tensor(rng.normal(size=(2, 600)))
    result = examine_mechanism(lambda s: s.tanh() @ weights, rng.normal(size=(8, 2)), rtol=0.9)
    assert "0,1" in result.verdict
