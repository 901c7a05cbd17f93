"""What is measured of pairs of models: nearness by group, by layer and by step, their outputs, and their heads."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from congruence.align._compare import compare
from congruence.align._layers import compare_layers
from congruence.align.comparison import Comparison, Pair
from congruence.arrays import Array, Float
from congruence.decoder.heads import compare_with_fitted, roeder_map
from congruence.errors import FewRowsWarning, InputError, NotConvergedWarning
from congruence.experiments.data._readers import find_files
from congruence.experiments.recipes.pair_spectra import Spectra
from congruence.experiments.recipes.pair_trainings import Bench, looks
from congruence.parts import Arrays
from congruence.result import json_text

COLUMNS = ("permutation", "similarity", "linear", "ica")  # of the paper's table, where the second is called rigid
ADMET, GRAPHS = "admet", 5  # graph networks of the data set modelpairs
HOW = "They are hidden layers of five graph networks; see the description of the data set modelpairs"
FEW = 1000  # rows by layer and by step
Scores = dict[str, Any]


def tasks_of(family: str) -> list[str]:
    """The parts that the scores of a family are made of, each of which a process can make."""
    return [f"{family}-{piece}" for piece in (("all",) if family == ADMET else PIECES)]


def score(bench: Bench, task: str) -> Scores:
    """One part of the scores, from disk or made now."""
    family, _, piece = task.partition("-")
    compute = partial(_admet, bench) if family == ADMET else partial(PIECES[piece], bench, family)
    found = bench.parts.get(f"scores-{task}", lambda: {"json": _packed(compute())})
    scores: Scores = json.loads(bytes(found["json"]).decode())
    return scores


def is_scored(bench: Bench, task: str) -> bool:
    """Whether a part of the scores is there."""
    return bench.parts.find(f"scores-{task}") is not None


def scored(bench: Bench, family: str) -> Scores:
    """All scores of a family. Those of "gpt" include the pairs across widths."""
    found: Scores = {}
    for task in tasks_of(family):
        piece = score(bench, task)
        pairs = piece.pop("pairs", {})
        found |= piece
        known = found.setdefault("pairs", {})
        for names, told in pairs.items():
            known.setdefault(names, {}).update(told)
    return found


def has_graphs() -> bool:
    """Whether the graph networks are where data sets are looked for."""
    try:
        _graph_files()
    except InputError:
        return False
    return True


def _packed(scores: Scores) -> Array:
    return np.frombuffer(json_text(scores).encode(), np.uint8)


def _last_looks(bench: Bench, family: str) -> dict[str, Arrays]:
    """The last look at each training of a family and, of "gpt", at those of another width."""
    members = [(family, number) for number in range(bench.seeds(family))]
    members += [("wide", number) for number in range(bench.seeds("wide"))] if family == "gpt" else []
    return {f"{one}-{number}": looks(bench, one, number)[-1] for one, number in members}


def _test(bench: Bench, family: str) -> Scores:
    """Nearness on rows that were not trained on, held out, with nulls and intervals."""
    cluster = bench.data(family).get("clusters")
    found = _compared(bench, {name: one["last"] for name, one in _last_looks(bench, family).items()}, cluster=cluster)
    return {
        "pairs": {_key(pair): _held_out(pair) for pair in found.pairs},
        "widths": {run.name: run.d for run in found.runs},
        "rows": found.runs[0].n,
        "clusters": None if cluster is None else len(np.unique(cluster)),
        "advice": list(found.notes),
    }


def _train(bench: Bench, family: str) -> Scores:
    """Nearness in sample on rows that were trained on, as in the paper."""
    runs = {name: one["trained"] for name, one in _last_looks(bench, family).items()}
    found = _compared(bench, runs, folds=2, nulls=0, bootstrap=0)
    return {"pairs": {_key(pair): {"in_sample": _in_sample(pair)} for pair in found.pairs}}


def _rest(bench: Bench, family: str) -> Scores:
    """Outputs, heads, layers, steps and the maps between layers."""
    last = _last_looks(bench, family)
    own = [name for name in last if name.startswith(family)]
    kind, cluster = "picture" if family == "mae" else "softmax", bench.data(family).get("clusters")
    pairs = {}
    for i, a in enumerate(last):
        for b in list(last)[i + 1 :]:
            told = disagreement(last[a]["outputs"], last[b]["outputs"], kind, bench.seed)
            pairs[f"{a} {b}"] = told | _heads(last[a], last[b])
    return {
        "pairs": pairs,
        "loss": {name: float(one["loss"]) for name, one in last.items()},
        "layers": _by_layer(bench, [last[name] for name in own[:2]], cluster),
        "map": _compared_layers(bench, {name: last[name] for name in own[:2]}, cluster),
        "steps": _by_step(bench, family, kind, cluster),
        "maps": _spectra(last[own[0]]),
    }


PIECES = {"test": _test, "train": _train, "rest": _rest}


def _compared(
    bench: Bench,
    runs: Mapping[str, Array],
    *,
    cluster: Array | None = None,
    groups: Sequence[str] = COLUMNS,
    **options: Any,
) -> Comparison:
    """Compare on the CPU; what `compare` warns of is in its advice."""
    how = {name: bench.parameters[name] for name in ("folds", "nulls", "bootstrap")} | {"seed": bench.seed} | options
    with warnings.catch_warnings():
        for kind in (FewRowsWarning, NotConvergedWarning):
            warnings.simplefilter("ignore", kind)
        return compare(dict(runs), groups=groups, cluster=cluster, device="cpu", **how)


def _key(pair: Pair) -> str:
    return f"{pair.source} {pair.target}"


def _held_out(pair: Pair) -> Scores:
    return {
        "held_out": {group: pair.groups[group].to_dict() for group in COLUMNS},
        "efficiency": pair.held_out_efficiency,
    }


def _in_sample(pair: Pair) -> Scores:
    return {group: pair.groups[group].mean for group in COLUMNS} | {"efficiency": pair.efficiency}


def _heads(a: Arrays, b: Arrays) -> Scores:
    """Roeder's map from the heads of two models beside the fitted one, where there are heads."""
    if "weights" not in a:
        return {}
    heads = [(one["weights"], one["biases"]) for one in (a, b)]
    read = roeder_map(*heads)
    return {"heads": read.to_dict() | compare_with_fitted(read, a["last"], b["last"], heads[1]).to_dict()}


def disagreement(a: Array, b: Array, kind: str, seed: int) -> dict[str, float]:
    """How far apart the outputs of two models are: 0 where they are the same, which is what theorems start from.

    Parameters
    ----------
    a, b : (n, ...)
        Logits, or pictures.
    kind : {"softmax", "sigmoid", "picture"}
        "softmax" takes half the summed difference of probabilities (total variation), "sigmoid" their mean
        difference, "picture" the distance of pixels. From 0 to 1 but for pictures.

    Returns
    -------
    dict
        "outputs", the mean over rows, and "outputs_of_chance", that over the mean for rows that do not belong together.
    """
    x, y = (_probabilities(np.asarray(one, np.float64).reshape(len(one), -1), kind) for one in (a, b))
    shifted = np.random.default_rng(seed).permutation(len(x))
    mates = np.empty_like(shifted)
    mates[shifted] = np.roll(shifted, 1)  # one cycle: no row keeps its own
    apart, chance = (float(_distance(x, other, kind).mean()) for other in (y, y[mates]))
    return {"outputs": apart, "outputs_of_chance": apart / chance if chance > 0 else float("nan")}


def _probabilities(logits: Float, kind: str) -> Float:
    if kind == "softmax":
        from scipy.special import softmax

        return np.asarray(softmax(logits, axis=1))
    return 1 / (1 + np.exp(-logits)) if kind == "sigmoid" else logits


def _distance(x: Float, y: Float, kind: str) -> Float:
    if kind == "picture":
        return np.asarray(np.linalg.norm(x - y, axis=1))
    apart = np.abs(x - y)
    return np.asarray(apart.sum(1) / 2 if kind == "softmax" else apart.mean(1))


def _by_layer(bench: Bench, two: Sequence[Arrays], cluster: Array | None) -> list[Scores]:
    """The nearness of each layer of the first model to the same layer of the second, held out."""
    some = None if cluster is None else cluster[:FEW]
    found = []
    for k in range(_count_layers(two[0])):
        runs = {name: one[f"layer{k}"][:FEW].astype(np.float32) for name, one in zip("ab", two, strict=True)}
        pair = _compared(bench, runs, cluster=some, groups=COLUMNS[:3], nulls=2).pairs[0]
        found.append({group: near.to_dict() for group, near in pair.groups.items()})
    return found


def _compared_layers(bench: Bench, two: Mapping[str, Arrays], cluster: Array | None) -> Scores:
    """The nearness of every layer of the first model to every layer of the second."""
    layers = [
        {layer_name(k, count): one[f"layer{k}"][:FEW].astype(np.float32) for k in range(count)}
        for one in two.values()
        for count in [_count_layers(one)]
    ]
    first, second = two
    how = {"folds": bench.parameters["folds"], "nulls": 2, "seed": bench.seed, "device": "cpu"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewRowsWarning)
        some = None if cluster is None else cluster[:FEW]
        found = compare_layers(*layers, names=(first, second), cluster=some, **how)
    return {**found.numbers(), "notes": list(found.notes), "settings": dict(found.settings)}


def layer_name(k: int, count: int) -> str:
    """What layer k of so many is called."""
    return "penultimate" if k == count - 1 else "embedding" if k == 0 else f"block {k}"


def _count_layers(last: Arrays) -> int:
    return sum(name.startswith("layer") for name in last)


def _by_step(bench: Bench, family: str, kind: str, cluster: Array | None) -> list[Scores]:
    """The mean over pairs of nearness, held out, and of the difference of outputs, at each look."""
    seen = {f"{family}-{number}": looks(bench, family, number) for number in range(bench.seeds(family))}
    some = None if cluster is None else cluster[:FEW]
    found = []
    for k, step in enumerate(bench.steps(family)):
        runs = {name: one[k]["last"][:FEW] for name, one in seen.items()}
        pairs = _compared(bench, runs, cluster=some, groups=COLUMNS[:3], nulls=2, bootstrap=0).pairs
        said = {name: one[k]["outputs"] for name, one in seen.items()}
        told = [disagreement(said[p.source], said[p.target], kind, bench.seed) for p in pairs]
        near = {group: float(np.mean([p.groups[group].held_out.mean for p in pairs])) for group in COLUMNS[:3]}
        near["null"] = float(np.mean([p.groups["similarity"].null for p in pairs]))
        loss = float(np.mean([float(one[k]["loss"]) for one in seen.values()]))
        apart = {key: float(np.mean([one[key] for one in told])) for key in told[0]}
        found.append({"step": step, "loss": loss} | near | apart)
    return found


def _spectra(last: Arrays) -> dict[str, dict[str, float]]:
    """What is said of the maps from layers to the penultimate one, by the number of the layer, and of the decoder."""
    names = [name.removeprefix("spectrum-") for name in last if name.startswith("spectrum-")]
    return {name: Spectra(last[f"spectrum-{name}"], int(last[f"directions-{name}"])).summary() for name in names}


def _graph_files() -> list[Any]:
    names = [f"admet_cls_seed{number}.npy" for number in range(GRAPHS)] + ["admet_cls_outputs.npz"]
    return find_files("modelpairs", [(name,) for name in names], HOW)


def _admet(bench: Bench) -> Scores:
    """The graph networks, of which there are hidden layers and outputs alone."""
    *files, outputs = _graph_files()
    runs, units = bench.parameters["graphs"], bench.parameters["graph_units"]
    values = {f"graphs-{k}": np.load(path, allow_pickle=False)[:, :units] for k, path in enumerate(files[:runs])}
    with np.load(outputs, allow_pickle=False) as file:
        logits = dict(zip(values, file["logits"], strict=False))
    test = _compared(bench, values, nulls=bench.parameters["graph_nulls"], folds=bench.parameters["graph_folds"])
    pairs = {}
    for pair in test.pairs:
        apart = disagreement(logits[pair.source], logits[pair.target], "sigmoid", bench.seed)
        pairs[_key(pair)] = _held_out(pair) | {"in_sample": _in_sample(pair)} | apart
    widths = {run.name: run.d for run in test.runs}
    return {"pairs": pairs, "widths": widths, "rows": test.runs[0].n, "clusters": None, "advice": list(test.notes)}
