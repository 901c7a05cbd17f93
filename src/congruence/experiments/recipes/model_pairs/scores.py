"""Scores of pairs of models: nearness by group, by layer and by step, their outputs, and their heads."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from congruence.align._compare import compare
from congruence.align._layers import compare_layers
from congruence.align.comparison import Comparison, Pair
from congruence.arrays import Array, Float
from congruence.decoder.heads import compare_with_fitted, roeder_map
from congruence.errors import FewRowsWarning, InputError, NotConvergedWarning
from congruence.experiments.data._readers import find_files
from congruence.experiments.recipes.model_pairs.spectra import JacobianSpectra
from congruence.experiments.recipes.model_pairs.trainings import OTHER_WIDTH, PairStudy, load_snapshots
from congruence.parts import Arrays
from congruence.result import json_text

COLUMNS = ("permutation", "similarity", "linear", "ica")  # of the paper's table, where the second is called rigid
ADMET, GRAPHS = "admet", 5  # graph networks of the data set modelpairs
HOW = "They are hidden layers of five graph networks; see the description of the data set modelpairs"
FEW = 1000  # rows by layer and by step
Scores = dict[str, Any]


def list_tasks(family: str) -> list[str]:
    """The parts of the scores of a family, each of which a process can compute."""
    return [f"{family}-{piece}" for piece in (("all",) if family == ADMET else PIECES)]


def score_task(study: PairStudy, task: str) -> Scores:
    """One part of the scores, from disk or computed now."""
    family, _, piece = task.partition("-")
    compute = partial(_score_graphs, study) if family == ADMET else partial(PIECES[piece], study, family)
    part = study.parts.get(f"scores-{task}", lambda: {"json": np.frombuffer(json_text(compute()).encode(), np.uint8)})
    scores: Scores = json.loads(bytes(part["json"]).decode())
    return scores


def is_scored(study: PairStudy, task: str) -> bool:
    """Whether a part of the scores is stored."""
    return study.parts.find(f"scores-{task}") is not None


def score_family(study: PairStudy, family: str) -> Scores:
    """All scores of a family, with the pairs across widths where there are two."""
    scores: Scores = {}
    for task in list_tasks(family):
        part = score_task(study, task)
        pairs = part.pop("pairs")
        scores |= part
        for names, numbers in pairs.items():
            scores.setdefault("pairs", {}).setdefault(names, {}).update(numbers)
    return scores


def has_graphs() -> bool:
    """Whether the files of the graph networks were found."""
    try:
        _graph_files()
    except InputError:
        return False
    return True


def _last_snapshots(study: PairStudy, family: str) -> dict[str, Arrays]:
    """The last snapshot of each training of a family, and of those of another width."""
    both = [one for one in (family, OTHER_WIDTH.get(family)) if one is not None]
    members = [(one, number) for one in both for number in range(study.seeds(one))]
    return {f"{one}-{number}": load_snapshots(study, one, number)[-1] for one, number in members}


def _test(study: PairStudy, family: str) -> Scores:
    """Nearness on rows that were not trained on, held out, with nulls and intervals."""
    cluster = study.data(family).get("clusters")
    runs = {name: one["last"] for name, one in _last_snapshots(study, family).items()}
    comparison = _compare(study, runs, cluster=cluster)
    clusters = None if cluster is None else len(np.unique(cluster))
    return {"pairs": {_key(pair): _held_out(pair) for pair in comparison.pairs}} | _about(comparison, clusters)


def _train(study: PairStudy, family: str) -> Scores:
    """Nearness in sample on rows that were trained on, as in the paper."""
    runs = {name: one["trained"] for name, one in _last_snapshots(study, family).items()}
    comparison = _compare(study, runs, folds=2, nulls=0, bootstrap=0)
    return {"pairs": {_key(pair): {"in_sample": _in_sample(pair)} for pair in comparison.pairs}}


def _rest(study: PairStudy, family: str) -> Scores:
    """Outputs, heads, layers, steps and the maps between layers."""
    last = _last_snapshots(study, family)
    own = [name for name in last if name.startswith(family)]
    kind, cluster = "picture" if family == "mae" else "softmax", study.data(family).get("clusters")
    few = None if cluster is None else cluster[:FEW]
    counts = _count_tokens(study.data(family)) if family == "gpt" else None
    pairs = {}
    for a, b in combinations(last, 2):
        apart = disagreement(last[a]["outputs"], last[b]["outputs"], kind, study.seed)
        pairs[f"{a} {b}"] = apart | compare_heads(last[a], last[b], counts)
    return {
        "pairs": pairs,
        "loss": {name: float(one["loss"]) for name, one in last.items()},
        "layers": _score_layers(study, [last[name] for name in own[:2]], few),
        "map": _compare_layers(study, {name: last[name] for name in own[:2]}, few),
        "steps": _score_steps(study, family, kind, few),
        "maps": _summarise_spectra(last[own[0]]),
    }


PIECES = {"test": _test, "train": _train, "rest": _rest}


def _compare(
    study: PairStudy,
    runs: Mapping[str, Array],
    *,
    cluster: Array | None = None,
    groups: Sequence[str] = COLUMNS,
    **options: Any,
) -> Comparison:
    """Compare on the CPU; the warnings of `compare` are also in its notes."""
    how = {name: study.parameters[name] for name in ("folds", "nulls", "bootstrap")} | {"seed": study.seed} | options
    with warnings.catch_warnings():
        for kind in (FewRowsWarning, NotConvergedWarning):
            warnings.simplefilter("ignore", kind)
        return compare(dict(runs), groups=groups, cluster=cluster, device="cpu", **how)


def _about(comparison: Comparison, clusters: int | None) -> Scores:
    widths = {run.name: run.d for run in comparison.runs}
    advice = list(comparison.notes)
    return {"widths": widths, "rows": comparison.runs[0].n, "clusters": clusters, "advice": advice}


def _key(pair: Pair) -> str:
    return f"{pair.source} {pair.target}"


def _held_out(pair: Pair) -> Scores:
    return {
        "held_out": {group: pair.groups[group].to_dict() for group in COLUMNS},
        "efficiency": pair.held_out_efficiency,
        "components": None if pair.components is None else pair.components.to_dict(),
    }


def _in_sample(pair: Pair) -> Scores:
    components = None if pair.components is None else pair.components.mean
    return {group: pair.groups[group].mean for group in COLUMNS} | {
        "efficiency": pair.efficiency,
        "components": components,
    }


def _count_tokens(data: Arrays) -> Array:
    """How often each token occurs in the text that was trained on."""
    return np.bincount(data["train"].ravel(), minlength=int(data["vocabulary"]))


def compare_heads(a: Arrays, b: Arrays, counts: Array | None) -> Scores:
    """Roeder's map from the heads of two models next to the fitted one, if there are heads.

    With `counts`, how often each class occurs in the data, there are also "weighted_heads": rare classes, whose rows
    are hardly trained, have little weight in the map.
    """
    if "weights" not in a:
        return {}
    heads = [(one["weights"], one["biases"]) for one in (a, b)]
    scores = {}
    for name, weights in {"heads": None, "weighted_heads": counts}.items():
        if name == "heads" or weights is not None:
            read = roeder_map(*heads, weights=weights)
            scores[name] = read.to_dict() | compare_with_fitted(read, a["last"], b["last"], heads[1]).to_dict()
    return scores


def disagreement(a: Array, b: Array, kind: str, seed: int) -> dict[str, float]:
    """The distance of the outputs of two models (n, ...); the theorems assume that it is 0.

    "softmax" takes half the summed difference of probabilities (total variation) of logits, "sigmoid" their mean
    difference, both from 0 to 1; "picture" takes the distance of pixels. Returns "outputs", the mean over rows, and
    "outputs_of_chance", divided by the mean over unrelated rows.
    """
    x, y = (np.asarray(one, np.float64).reshape(len(one), -1) for one in (a, b))
    if kind == "softmax":
        from scipy.special import softmax

        x, y = softmax(x, axis=1), softmax(y, axis=1)
    elif kind == "sigmoid":
        x, y = 1 / (1 + np.exp(-x)), 1 / (1 + np.exp(-y))
    shifted = np.random.default_rng(seed).permutation(len(x))
    partners = np.empty_like(shifted)
    partners[shifted] = np.roll(shifted, 1)  # one cycle: no row keeps its partner

    def mean_distance(other: Float) -> float:
        if kind == "picture":
            return float(np.linalg.norm(x - other, axis=1).mean())
        distances = np.abs(x - other)
        return float((distances.sum(1) / 2 if kind == "softmax" else distances.mean(1)).mean())

    distance, chance = mean_distance(y), mean_distance(y[partners])
    return {"outputs": distance, "outputs_of_chance": distance / chance if chance > 0 else float("nan")}


def _score_layers(study: PairStudy, two: Sequence[Arrays], cluster: Array | None) -> list[Scores]:
    """The nearness of each layer of the first model to the same layer of the second, held out."""
    scores = []
    for k in range(_count_layers(two[0])):
        runs = {name: one[f"layer{k}"][:FEW].astype(np.float32) for name, one in zip("ab", two, strict=True)}
        pair = _compare(study, runs, cluster=cluster, groups=COLUMNS[:3], nulls=2).pairs[0]
        scores.append({group: near.to_dict() for group, near in pair.groups.items()})
    return scores


def _compare_layers(study: PairStudy, two: Mapping[str, Arrays], cluster: Array | None) -> Scores:
    """The nearness of every layer of the first model to every layer of the second."""
    layers = [
        {layer_name(k, count): one[f"layer{k}"][:FEW].astype(np.float32) for k in range(count)}
        for one in two.values()
        for count in [_count_layers(one)]
    ]
    first, second = two
    how = {"folds": study.parameters["folds"], "seed": study.seed, "device": "cpu"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewRowsWarning)
        result = compare_layers(*layers, names=(first, second), cluster=cluster, **how)
    return {**result.numbers(), "notes": list(result.notes), "settings": dict(result.settings)}


def layer_name(k: int, count: int) -> str:
    """The name of layer k of `count`."""
    return "penultimate" if k == count - 1 else "embedding" if k == 0 else f"block {k}"


def _count_layers(last: Arrays) -> int:
    return sum(name.startswith("layer") for name in last)


def _score_steps(study: PairStudy, family: str, kind: str, cluster: Array | None) -> list[Scores]:
    """The mean over pairs of nearness, held out, and of the difference of outputs, in each snapshot."""
    snapshots = {f"{family}-{number}": load_snapshots(study, family, number) for number in range(study.seeds(family))}
    scores = []
    for k, step in enumerate(study.steps(family)):
        runs = {name: one[k]["last"][:FEW] for name, one in snapshots.items()}
        pairs = _compare(study, runs, cluster=cluster, groups=COLUMNS[:3], nulls=2, bootstrap=0).pairs
        outputs = {name: one[k]["outputs"] for name, one in snapshots.items()}
        distances = [disagreement(outputs[p.source], outputs[p.target], kind, study.seed) for p in pairs]
        near = {group: float(np.mean([p.groups[group].held_out.mean for p in pairs])) for group in COLUMNS[:3]}
        near["null"] = float(np.mean([p.groups["similarity"].null for p in pairs]))
        rigid = {_key(p): p.groups["similarity"] for p in pairs}
        each = {name: {"similarity": one.held_out.mean, "null": one.null} for name, one in rigid.items()}
        loss = float(np.mean([float(one[k]["loss"]) for one in snapshots.values()]))
        apart = {key: float(np.mean([one[key] for one in distances])) for key in distances[0]}
        scores.append({"step": step, "loss": loss, "pairs": each} | near | apart)
    return scores


def _summarise_spectra(last: Arrays) -> dict[str, dict[str, float]]:
    """Summaries of the maps from layers to the penultimate one, by the number of the layer, and of the decoder."""
    names = [name.removeprefix("spectrum-") for name in last if name.startswith("spectrum-")]
    return {
        name: JacobianSpectra(last[f"spectrum-{name}"], int(last[f"directions-{name}"])).summary() for name in names
    }


def _graph_files() -> list[Any]:
    names = [f"admet_cls_seed{number}.npy" for number in range(GRAPHS)] + ["admet_cls_outputs.npz"]
    return find_files("modelpairs", [(name,) for name in names], HOW)


def _score_graphs(study: PairStudy) -> Scores:
    """The graph networks, of which only hidden layers and outputs are known."""
    *files, outputs = _graph_files()
    runs, units = study.parameters["graphs"], study.parameters["graph_units"]
    values = {f"graphs-{k}": np.load(path, allow_pickle=False)[:, :units] for k, path in enumerate(files[:runs])}
    with np.load(outputs, allow_pickle=False) as file:
        logits = dict(zip(values, file["logits"], strict=False))
    test = _compare(study, values, nulls=study.parameters["graph_nulls"], folds=study.parameters["graph_folds"])
    pairs = {}
    for pair in test.pairs:
        apart = disagreement(logits[pair.source], logits[pair.target], "sigmoid", study.seed)
        pairs[_key(pair)] = _held_out(pair) | {"in_sample": _in_sample(pair)} | apart
    return {"pairs": pairs} | _about(test, None)
