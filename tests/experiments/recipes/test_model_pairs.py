"""Pairs of models: what is measured of them is right, claims follow the numbers, and the recipe goes on."""

import copy
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

torch = pytest.importorskip("torch")
pytest.importorskip("transformers", reason="transformers is not installed")
from congruence.align import compare  # noqa: E402
from congruence.errors import InputError  # noqa: E402
from congruence.experiments.models.transformers_models import ImageClasses, MaskedPatches, NextToken  # noqa: E402
from congruence.experiments.recipes import reproduce, verify  # noqa: E402
from congruence.experiments.recipes._files import read_numbers  # noqa: E402
from congruence.experiments.recipes.model_pairs import run as model_pairs  # noqa: E402
from congruence.experiments.recipes.model_pairs import scores  # noqa: E402
from congruence.experiments.recipes.model_pairs.claims import (  # noqa: E402
    PRINTED,
    in_components,
    judge,
    pairs_by_kind,
    rigid_share,
)
from congruence.experiments.recipes.model_pairs.figures import read_layers  # noqa: E402
from congruence.experiments.recipes.model_pairs.scores import disagreement, has_graphs  # noqa: E402
from congruence.experiments.recipes.model_pairs.spectra import (  # noqa: E402
    JacobianSpectra,
    decoder_spectra,
    layer_spectra,
)
from congruence.experiments.recipes.model_pairs.tables import make_tables  # noqa: E402
from congruence.experiments.recipes.model_pairs.trainings import PairStudy, choose_rows  # noqa: E402
from congruence.parts import Parts  # noqa: E402
from congruence.result import json_text  # noqa: E402

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, size=(2, 3, 8, 8)).astype(np.uint8)


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    """The recipe at its smallest, done once."""
    folder = tmp_path_factory.mktemp("pairs") / "smoke"
    reproduce("model-pairs", folder, scale="smoke", device="cpu")
    return folder


def read(folder):
    return json.loads((folder / "result.json").read_text())


def test_the_map_from_a_block_to_the_final_norm_has_the_spectrum_of_its_jacobian():
    model = NextToken(vocabulary=30, length=8, width=8, depth=2, heads=2).eval()
    tokens = RNG.integers(0, 30, size=(2, 8)).astype(np.int32)
    *_, found = layer_spectra(model, tokens, seed=3)
    places = np.random.default_rng(3).integers(model.skip, 8, size=2)
    for row, place in enumerate(places):
        jacobian = moved_block(model, tokens[row : row + 1], place)
        assert_allclose(found.values[row], torch.linalg.svdvals(jacobian), rtol=1e-3, atol=1e-4)
    assert found.directions == 8


def moved_block(model, tokens, place):
    """The Jacobian from what the first block gives for one token to its final norm, by putting other values there."""
    gpt, given = model.net.gpt_neox, {"input_ids": torch.as_tensor(tokens).long()}

    def hooked(hook):
        handle = gpt.layers[0].register_forward_hook(hook)
        try:
            return gpt(**given).last_hidden_state[0, place]
        finally:
            handle.remove()

    kept = []
    hooked(lambda module, args, output: kept.append(output if torch.is_tensor(output) else output[0]))
    block = kept[0].detach()

    def later(moved):
        changed = block.clone()
        changed[0, place] = moved
        return hooked(lambda module, args, output: changed if torch.is_tensor(output) else (changed, *output[1:]))

    return torch.autograd.functional.jacobian(later, block[0, place])


def test_a_decoder_has_the_spectrum_of_its_jacobian():
    model = MaskedPatches(side=8, patch=4, channels=1, width=8, depth=2, heads=2).eval()
    images = IMAGES[:, :1]
    found = decoder_spectra(model, images, seed=1)
    place = int(np.random.default_rng(1).integers(1, 5, size=2)[0])
    with model.whole(), torch.no_grad():
        tokens = model.net.vit(**model.inputs(images[:1])).last_hidden_state.double()
    decoder = copy.deepcopy(model.net.decoder).double()

    def painted(moved):
        changed = tokens.clone()
        changed[0, place] = moved
        return model.paint(changed, decoder).flatten()

    jacobian = torch.autograd.functional.jacobian(painted, tokens[0, place])
    assert_allclose(found.values[0], torch.linalg.svdvals(jacobian), rtol=1e-4, atol=1e-6)


def test_a_classifier_forgets_more_directions_than_it_has_features():
    model = ImageClasses(channels=3, classes=4, width=2).eval()
    first, *_, last = layer_spectra(model, IMAGES)
    assert first.values.shape == (2, 16)
    assert (first.directions, last.directions) == (32, 8)  # 2 channels of 4 x 4 pixels, 8 of one
    assert first.summary()["lost"] >= 16 > last.summary()["lost"]


def test_the_summary_of_a_spectrum_is_of_what_the_map_keeps():
    told = JacobianSpectra(np.array([[4.0, 0.5, 0.0], [4.0, 0.5, 1e-9]]), 5).summary()
    assert told["lost"] == 3
    assert (told["largest"], told["least"], told["constant"], told["condition"]) == (4.0, 0.5, 4.0, 8.0)


@pytest.mark.parametrize("kind", ["softmax", "sigmoid", "picture"])
def test_outputs_are_apart_by_0_where_they_are_the_same_and_by_chance_where_unrelated(kind):
    a, b = RNG.normal(size=(2, 2000, 5))
    assert disagreement(a, a, kind, 0)["outputs"] == 0
    assert_allclose(disagreement(a, b, kind, 0)["outputs_of_chance"], 1, atol=0.05)
    assert 0.01 < disagreement(a, a + 0.1 * b, kind, 0)["outputs_of_chance"] < 0.2


def test_logits_that_differ_by_a_shift_are_the_same_outputs_of_a_softmax():
    a = RNG.normal(size=(20, 5))
    assert disagreement(a, a + 3, "softmax", 0)["outputs"] == pytest.approx(0, abs=1e-12)
    assert disagreement(np.array([[9e9, 0.0]]), np.array([[0.0, 9e9]]), "softmax", 0)["outputs"] == 1


def test_the_error_of_components_is_reported_beside_that_in_the_space_of_the_target():
    sources = RNG.uniform(-1, 1, size=(600, 3))
    runs = {name: sources @ np.linalg.qr(RNG.normal(size=(3, 3)))[0] for name in "ab"}
    (pair,) = compare(runs, groups=scores.COLUMNS, nulls=2, folds=2, device="cpu").pairs
    one = json.loads(json_text(scores._held_out(pair) | {"in_sample": scores._in_sample(pair)}))
    error, null = in_components(one)
    assert error < 0.05 < 0.2 < null
    assert one["in_sample"]["components"] == pytest.approx(error, abs=0.02)
    assert np.isnan(in_components({"components": None})).all()
    assert np.isnan(in_components({})).all()  # numbers of an earlier version


def test_tables_have_the_error_of_components_where_it_was_measured(smoke):
    tables = {one["title"]: one for one in read(smoke)["numbers"]["tables"]}
    for title in ("Table 1", "Held out"):
        place = tables[title]["columns"].index("ICA, of components")
        values = [row[place] for row in tables[title]["rows"] if not row[0].startswith("paper")]
        assert all(0 < value < 1 for value in values)


def test_heads_are_compared_with_and_without_the_counts_of_their_classes():
    heads = RNG.normal(size=(2, 30, 4))
    last = RNG.normal(size=(50, 4))
    a, b = ({"weights": head, "biases": np.zeros(30), "last": last} for head in heads)
    counts = scores._count_tokens({"train": RNG.integers(0, 20, size=(9, 16)), "vocabulary": np.asarray(30)})
    assert (len(counts), counts.sum(), counts[20:].sum()) == (30, 144, 0)
    assert scores.compare_heads({}, {}, counts) == {}
    assert list(scores.compare_heads(a, b, None)) == ["heads"]
    both = scores.compare_heads(a, b, counts)
    assert (both["heads"]["classes_used"], both["weighted_heads"]["classes_used"]) == (30, np.count_nonzero(counts))
    assert both["heads"]["heads"] != both["weighted_heads"]["heads"]


def told(permutation, rigid, linear, ica, efficiency, **more):
    columns = {"permutation": permutation, "similarity": rigid, "linear": linear, "ica": ica}
    near = {
        name: {"held_out": {"mean": value, "low": 0.99 * value, "high": 1.01 * value}, "null": 0.5}
        for name, value in columns.items()
    }
    found = {"in_sample": columns | {"efficiency": efficiency}, "held_out": near, "efficiency": efficiency}
    return found | {"outputs_of_chance": 0.05} | more


def findings(**changes):
    """What the paper printed, as if it had been found here."""
    heads = {"unique": True, "heads": 0.14, "fitted": 0.131, "disagreement": 0.1}
    pairs = {kind: told(*numbers) for kind, (_, *numbers) in PRINTED.items()} | changes
    names = {kind: [f"{kind}-{i} {kind}-{j}" for i, j in ((0, 1), (0, 2), (1, 2))] for kind in ("gpt", "mae", "resnet")}
    for kind, other in (("gpt", "wide"), ("mae", "large")):
        names[other] = [f"{kind}-{i} {other}-{j}" for i in (0, 1) for j in (0, 1)]
    pairs = {"wide": pairs["gpt"]} | pairs
    pairs["gpt"] |= {"heads": heads, "weighted_heads": dict(heads)}
    every = {kind: {name: copy.deepcopy(pairs[kind]) for name in some} for kind, some in names.items()}
    every["gpt"] |= every.pop("wide") | {"wide-0 wide-1": {}}
    every["mae"] |= every.pop("large")
    return {kind: {"pairs": some, "steps": steps(names[kind])} for kind, some in every.items()}


def steps(names):
    """Errors of pairs before the first step and after the last, a quarter."""
    every = [(step, {"similarity": near, "null": 0.5}) for step, near in ((0, 0.4), (9, 0.1))]
    return [{"step": step, "pairs": {name: dict(one) for name in names}} | one for step, one in every]


def test_the_numbers_of_the_paper_bear_out_its_claims():
    assert [claim.status for claim in judge(findings())] == ["holds"] * 10


def test_claims_follow_the_numbers():
    flat = told(0.6, 0.45, 0.449, 0.65, -0.5)
    order, ica, language, mae, resnet, alike, *_ = judge(findings(gpt=flat))
    assert [one.status for one in (order, ica, language)] == ["ambiguous", "fails", "fails"]
    assert [one.status for one in (mae, resnet, alike)] == ["holds"] * 3
    apart = judge(findings(gpt=told(0.2, 0.15, 0.13, 0.18, 0.5, outputs_of_chance=0.3)))
    assert [apart[i].status for i in (2, 5, 7)] == ["unknown"] * 3
    assert apart[2].evidence.startswith("The premise fails: outputs differ by up to 30")
    bent = told(0.2, 0.19, 0.02, 0.1, 0.5)
    assert [one.status for one in judge(findings(mae=bent))[3:6]] == ["fails", "holds", "fails"]
    crossed = told(0.2, 0.1, 0.15, 0.1, 0.5)
    assert judge(findings(resnet=crossed))[0].status == "fails"
    far = findings()
    for place, name in ((7, "heads"), (8, "weighted_heads")):
        for some, status in ((["gpt-0 gpt-1"], "ambiguous"), (["gpt-0 gpt-2", "gpt-1 gpt-2"], "fails")):
            for pair in some:
                far["gpt"]["pairs"][pair][name] |= {"heads": 0.4}
            assert judge(far)[place].status == status
        far["gpt"]["pairs"]["gpt-0 gpt-1"][name] |= {"unique": False}
        assert judge(far)[place].status == "unknown"
    for one in far["mae"]["steps"][-1]["pairs"].values():
        one["null"] = 0.1  # as near as before in shares of the diameter, but all of it is chance
    assert judge(far)[9].status == "fails"
    one = findings()
    del one["mae"]["pairs"]["mae-0 mae-2"], one["mae"]["pairs"]["mae-1 mae-2"]
    assert [judge(one)[i].status for i in (1, 3)] == ["unknown"] * 2  # the spread of a single pair is not known
    few = findings()
    few["gpt"] |= {"rows": 490, "widths": {"gpt-0": 10}}
    assert judge(few)[1].status == "unknown"  # 49 rows for each dimension are too few for ICA
    few["gpt"]["rows"] = 500
    assert judge(few)[1].status == "holds"
    few["gpt"] |= {"rows": 50 * 256, "widths": {"gpt-0": 256}}
    assert judge(few)[1].evidence.startswith("ICA needs about 29,491 rows in 256 dimensions; there are 12,800.")
    by_chance = told(0.6, 0.55, 0.52, 0.6, 0.0)
    assert judge(findings(large=by_chance))[6].status == "fails"
    alone = findings()
    for number in (0, 1):
        del alone["mae"]["pairs"][f"mae-{number} large-1"]
    assert judge(alone)[6].status == "unknown"  # one training of a width does not show how such trainings vary


def test_numbers_that_were_kept_before_pairs_and_weights_were_are_not_judged():
    old = findings()
    for family in old.values():
        for one in family["steps"]:
            del one["pairs"]
    for one in old["gpt"]["pairs"].values():
        one.pop("weighted_heads", None)
    heads, weighted, training = judge(old)[7:]
    assert [one.status for one in (heads, weighted, training)] == ["holds", "unknown", "unknown"]
    assert training.number == pytest.approx(0.25)
    assert "too few kept numbers" in training.evidence


def test_no_two_trainings_share_first_weights_or_batches_and_the_first_rows_are_from_everywhere():
    study = PairStudy(model_pairs.PARAMETERS["paper"], 0, "cpu", Parts(Path(), {}))
    assert len({study.training_seed(*one) for one in study.trainings if one[0] in ("gpt", "wide")}) == 4
    first = choose_rows(10_000, 3000, 0)[:16]
    assert len(set(first)) == 16
    assert first.max() > 5000


def test_pairs_across_widths_are_a_kind_of_their_own():
    assert {kind: list(pairs) for kind, pairs in pairs_by_kind(findings()).items()} == {
        "gpt": ["gpt-0 gpt-1", "gpt-0 gpt-2", "gpt-1 gpt-2"],
        "wide": ["gpt-0 wide-0", "gpt-0 wide-1", "gpt-1 wide-0", "gpt-1 wide-1"],
        "mae": ["mae-0 mae-1", "mae-0 mae-2", "mae-1 mae-2"],
        "large": ["mae-0 large-0", "mae-0 large-1", "mae-1 large-0", "mae-1 large-1"],
        "resnet": ["resnet-0 resnet-1", "resnet-0 resnet-2", "resnet-1 resnet-2"],
    }
    assert rigid_share(0.4, 0.2, 0.1) == pytest.approx(2 / 3)
    assert np.isnan(rigid_share(0.1, 0.1, 0.1))


def test_the_recipe_writes_all_that_is_asked_for(smoke):
    result = read(smoke)
    families, ours = ["gpt", "mae", "resnet"] + ["admet"] * has_graphs(), read_numbers(smoke)["ours"]
    assert [name for name in ours if name != "data"] == families
    assert list(ours["gpt"]["pairs"]) == ["gpt-0 gpt-1", "gpt-0 wide-0", "gpt-1 wide-0"]
    one = ours["mae"]["pairs"]["mae-0 mae-1"]
    errors = [one["in_sample"][group] for group in ("permutation", "similarity", "linear")]
    assert errors == sorted(errors, reverse=True)
    assert one["held_out"]["linear"]["held_out"]["low"] < one["held_out"]["linear"]["held_out"]["high"]
    printed = {"permutation": 0.219, "similarity": 0.15, "linear": 0.131, "ica": 0.202, "efficiency": 0.25}
    assert result["numbers"]["paper"]["Pythia-160M-0, -1"] == printed
    assert "Python 3." in ours["data"]["gpt"]
    assert len(make_tables({family: ours[family] for family in families})) == 9
    assert (smoke / "layer-map-gpt.svg").is_file()
    assert verify(smoke) == []
    assert (smoke / "parts" / "models" / "resnet-1" / "model.safetensors").is_file()


def test_what_was_lost_is_done_again_and_comes_out_the_same(smoke, tmp_path):
    again = tmp_path / "again"
    shutil.copytree(smoke, again)
    (again / "result.json").unlink()
    (again / "parts" / "mae-1-step0.safetensors").unlink()
    for path in (again / "parts").glob("scores-mae-*"):
        path.unlink()
    said = []
    reproduce("model-pairs", again, scale="smoke", device="cpu", announce=said.append)
    assert "1 trainings on cpu (20 steps of mae)" in said[0]
    assert (again / "result.json").read_text() == (smoke / "result.json").read_text()


def test_missing_data_are_named_with_the_way_out(tmp_path, monkeypatch):
    monkeypatch.setenv("CONGRUENCE_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(InputError, match="--data rooms uses images that are drawn here"):
        reproduce("model-pairs", tmp_path / "out", scale="smoke", device="cpu", data="mnist")
    assert not has_graphs()


def test_every_scale_names_the_same_settings():
    names = [sorted(one) for one in model_pairs.PARAMETERS.values()]
    assert all(one == names[0] for one in names)


def test_layers_are_read_from_parts_of_version_0_1_0_too():
    names = {"source": "a", "target": "b", "measure": "similarity", "direction": "lower is closer", "held_out": True}
    numbers = {"n": 9, "nearness": [[0.1, None]], "null": [[0.4, 0.5]], "settings": {}}
    old = read_layers(names | numbers | {"rows": ["x"], "columns": ["y", "z"], "advice": [], "verdict": "An old one."})
    new = {"source_layers": ["x"], "target_layers": ["y", "z"], "notes": [], "perfect": 0.0, "standard_error": None}
    assert old.to_json() == read_layers(names | numbers | new).to_json()
    assert (old.source_layers, old.target_layers) == (["x"], ["y", "z"])
    assert np.isnan([old.nearness[0, 1], *old.p[0], *old.p_layer]).all()
