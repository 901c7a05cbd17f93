"""Section 4 of Kivva et al., real data: MFCVAEs on MNIST with ReLU and LeakyReLU, and the MCC of their codes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from congruence.arrays import Array
from congruence.document import Table
from congruence.experiments.data.digits import split_digits
from congruence.experiments.processes import run_tasks
from congruence.experiments.recipes._mixture_trainings import (
    active_numbers,
    load_or_train,
    mean_number,
    over_pair_gaps,
    pair_values,
    spread_cell,
    spread_of,
)
from congruence.experiments.recipes.claims import Estimate, over_pairs, over_seeds, read_claims, subtract
from congruence.experiments.recipes.recipe import RecipeJob
from congruence.experiments.recipes.result import Presentation, RecipeFigure, draw_figure, estimate_cell, number_table
from congruence.formatting import number
from congruence.mixture.agreement import LatentSpace, compare_spaces
from congruence.parts import Arrays
from congruence.progress import no_progress
from congruence.report.figures.svg import HELD_OUT, INK
from congruence.result import Finding

EDITION = 2  # 1: another bound, other parameters of variances and another slope of LeakyReLU
DATA = ("mnist", "digits")
_FACETS = {"latents": 10, "facets": 2, "clusters": 25}
_EPOCH = 118  # batches of 512 of 60,000 images
# What the authors of MFCVAE published for MNIST: two progressive steps of 201 epochs, of which their program only
# evaluates in the first; the first facet faded in over 15,000 batches from the second step on; no pretraining; a
# Bernoulli likelihood (their program sets it for MNIST, so that the standard deviation of 0.35 in its configuration has
# no effect); and components that start with a variance of 0.01.
_LOSS = {"likelihood": "bernoulli", "start_variance": 0.01, "pretraining": 0}
_PUBLISHED = {"data": "mnist", "rows": 60_000, "hidden": [500, 2000], "batch": 512, "learning_rate": 5e-4}
_PUBLISHED |= {"steps": 401 * _EPOCH, "hold": 200 * _EPOCH, "fade": 15_000} | _LOSS | _FACETS
PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    "smoke": {"data": "digits", "rows": 900, "test_rows": 600, "runs": 2, "hidden": [32, 48], "batch": 100}
    | {"steps": 150, "hold": 40, "fade": 40, "learning_rate": 2e-3, "latents": 4, "facets": 2, "clusters": 5}
    | _LOSS,
    "small": {"data": "mnist", "rows": 10_000, "test_rows": 2000, "runs": 5, "hidden": [100, 200], "batch": 256}
    | {"steps": 6000, "hold": 1500, "fade": 1000, "learning_rate": 1e-3}
    | _LOSS
    | _FACETS,
    "paper": {"test_rows": 10_000, "runs": 10} | _PUBLISHED,
    "full": {"test_rows": 10_000, "runs": 50} | _PUBLISHED,
}
ON_A_GPU = 5  # trainings at a time: a step of one is mostly the launching of kernels
ACTIVATIONS = {"relu": "ReLU", "leaky_relu": "LeakyReLU"}
PRINTED = {"relu": {"strong": 0.70, "weak": 0.91}, "leaky_relu": {"strong": 0.69, "weak": 0.94}}
MCC = ("strong", "weak", "weak_held_out")
SMALLER = (
    "Not compared with the printed numbers: fewer images, smaller networks and a shorter schedule than those published "
    "for MFCVAE."
)
OLD_LIKELIHOOD = (
    "Not compared with the printed numbers: these trainings followed the published schedule, but with a Gaussian "
    "likelihood of standard deviation 0.35, and components that start with a variance of 0.01 of standardised codes. "
    "The program of the authors of MFCVAE sets a Bernoulli likelihood for MNIST, and codes are not standardised; its "
    "bound, its parameters of variances and its LeakyReLU (slope 0.01, here 0.2) differ as well."
)
CLAIMS = read_claims("mixture-mnist")
PAPER = {"runs": 10, "MCC": PRINTED, "distance": "not computed: infeasible"}


def plan(parameters: Mapping[str, Any], device: str, parts: Any) -> str:
    """Say what will be trained."""
    count = len(ACTIVATIONS) * parameters["runs"]
    kept = sum(parts.find(f"{name}-{i}") is not None for name in ACTIVATIONS for i in range(parameters["runs"]))
    left = f"{count - kept} trainings of {parameters['steps']} steps on {parameters['data']}, on {device}"
    return f"{left}; {kept} are finished already" if kept else left


def compute(job: RecipeJob) -> dict[str, Any]:
    """Train with both activations, several models at a time on a GPU, and compare all pairs."""
    count = job.parameters["runs"]
    names = [(name, i) for i in range(count) for name in ACTIVATIONS]
    tasks = [(replace(job, progress=no_progress), *one) for one in names]
    at_once = 1 if job.device == "cpu" else ON_A_GPU
    trained = dict(
        zip(names, run_tasks(_load_or_train, tasks, at_once, partial(job.progress, "training")), strict=True)
    )
    runs = {name: [trained[name, i] for i in range(count)] for name in ACTIVATIONS}
    ours = {}
    for name, some in runs.items():
        codes = [run["codes"] for run in some]
        split = [np.array_split(one, job.parameters["facets"], axis=1) for one in codes]
        facets = [_compare(facet, job.seed) for facet in zip(*split, strict=True)]  # the shallowest first
        ours[name] = _compare(codes, job.seed) | active_numbers(some) | {"facets": facets}
    return ours


def _load_or_train(job: RecipeJob, name: str, number: int) -> Arrays:
    """The arrays of a training with an activation, from disk or trained now."""
    images, test = load_images(job)
    settings = ("latents", "facets", "clusters", "hidden", "hold", "fade", *_LOSS)
    config = {"model": "mfcvae", "activation": name, "shape": list(images.shape[1:])}
    config |= {key: job.parameters[key] for key in settings}
    return load_or_train(job, f"{name}-{number}", config | {"seed": 1000 * job.seed + number}, images, (test,))


def present(ours: Mapping[str, Any], settings: Mapping[str, Any]) -> Presentation:
    """Judge the claims."""
    published = settings.items() >= _PUBLISHED.items()
    differs = "" if published else OLD_LIKELIHOOD if settings.get("epochs") == 402 else SMALLER
    notes = (differs,) if differs else ()
    return Presentation(headline(ours), judge(ours, differs), make_tables(ours), (draw_mcc(ours),), PAPER, notes=notes)


def load_images(job: RecipeJob) -> tuple[Array, Array]:
    """Images to train on and to compare on, uint8 (n, 1, side, side), drawn with the seed."""
    (x, _), (y, _) = split_digits(job.parameters["data"], job.seed)
    side = math.isqrt(x.shape[1])
    rng = np.random.default_rng([job.seed, 5])
    chosen = [
        some[np.sort(rng.permutation(len(some))[: job.parameters[name]])]
        for some, name in ((x, "rows"), (y, "test_rows"))
    ]
    train, test = (np.round(255 * some).astype(np.uint8).reshape(-1, 1, side, side) for some in chosen)
    return train, test


def _compare(codes: Sequence[Array], seed: int) -> dict[str, Any]:
    """The agreement of codes, without the correlations of single latents."""
    found = compare_spaces([LatentSpace(f"run {i + 1}", some) for i, some in enumerate(codes)], seed=seed)
    pairs = [{"source": pair.source, "target": pair.target, "mcc": pair.to_dict()["mcc"]} for pair in found.pairs]
    return {"runs": found.to_dict()["runs"], "pairs": pairs}


def headline(ours: Mapping[str, Any]) -> tuple[str, ...]:
    """The mean MCC with each activation."""
    means = [
        f"{ACTIVATIONS[name]}: {spread_of(one, 'weak')} (weak) and {spread_of(one, 'strong')} (strong)"
        for name, one in ours.items()
    ]
    return (f"Mean MCC between {len(ours['relu']['runs'])} trainings: {'; '.join(means)}.",)


def judge(ours: Mapping[str, Any], differs: str) -> tuple[Finding, ...]:
    """Judge the claims about MNIST, and whether facets with more components are more stable.

    The printed numbers are compared only if nothing `differs` from the published trainings.
    """
    mcc = {name: {which: over_pairs(pair_values(one, which)) for which in MCC} for name, one in ours.items()}
    gaps = [over_pair_gaps(pair_values(one, "weak_held_out"), pair_values(one, "strong")) for one in ours.values()]
    numbers = "; ".join(
        f"{ACTIVATIONS[name]}: strong {one['strong']}, weak {one['weak']}, held out {one['weak_held_out']}"
        for name, one in mcc.items()
    )
    leaky, relu = mcc["leaky_relu"]["weak_held_out"], mcc["relu"]["weak_held_out"]
    return (
        CLAIMS["weak-mcc-exceeds-strong"].judge(*gaps, null=0.0, evidence=f"{numbers}."),
        CLAIMS["mcc-as-printed"].judge(
            *(mcc[name][which] for name in ACTIVATIONS for which in ("strong", "weak")),
            unless=differs,
            evidence=f"{numbers}.",
        ),
        CLAIMS["leaky-relu-is-as-stable"].judge(
            subtract(leaky, relu), null=0.0, evidence=f"Weak MCC held out {leaky} against {relu}."
        ),
        CLAIMS["the-deepest-facet-is-the-most-stable"].judge(
            *(_facet_gap(one) for one in ours.values()),
            null=0.0,
            evidence="; ".join(f"{ACTIVATIONS[name]}: {_describe_facets(one)}" for name, one in ours.items())
            + ". No theorem is about single facets: all latents are identified together, up to one affine map, which "
            "may mix facets.",
        ),
    )


def _facet_mcc(numbers: Mapping[str, Any], which: str) -> list[Estimate]:
    """An MCC of each facet alone, over trainings."""
    if "facets" in numbers:
        return [over_pairs(pair_values(one, which)) for one in numbers["facets"]]
    kept = {"weak": "in_sample", "weak_held_out": "held_out"}  # of edition 1, which kept means only
    return [Estimate(one.get(kept.get(which), math.nan), math.nan, math.nan) for one in numbers["weak_by_facet"]]


def _facet_gap(numbers: Mapping[str, Any]) -> Estimate:
    """The MCC of the deepest facet minus that of the first, pair by pair, as both are facets of the same trainings."""
    if "facets" not in numbers:  # of edition 1, which kept means only
        first, *_, last = _facet_mcc(numbers, "weak_held_out")
        return Estimate(last.value - first.value, math.nan, math.nan)
    of_first, *_, of_last = (pair_values(facet, "weak_held_out") for facet in numbers["facets"])
    return over_pair_gaps(of_last, of_first)


def _describe_facets(numbers: Mapping[str, Any]) -> str:
    states = np.array(numbers["states"]).mean(0)
    return ", ".join(
        f"{number(float(count), 3)} components separated, weak MCC held out {one}"
        for one, count in zip(_facet_mcc(numbers, "weak_held_out"), states, strict=True)
    )


def make_tables(ours: Mapping[str, Any]) -> tuple[Table, ...]:
    """The paper's numbers next to ours, and each facet alone."""
    whole = [
        (
            ACTIVATIONS[name],
            PRINTED[name]["strong"],
            spread_cell(one, "strong"),
            PRINTED[name]["weak"],
            *(spread_cell(one, which) for which in ("weak", "weak_held_out")),
            *(mean_number(one, which) for which in ("active", "states")),
        )
        for name, one in ours.items()
    ]
    alone = [
        (
            ACTIVATIONS[name],
            k + 1,
            estimate_cell(over_seeds(np.array(one["states"])[:, k])),
            *(estimate_cell(_facet_mcc(one, which)[k]) for which in MCC),
        )
        for name, one in ours.items()
        for k in range(len(one["states"][0]))
    ]
    pairs, count = len(ours["relu"]["pairs"]), len(ours["relu"]["runs"])
    mcc = ("strong", "weak, paper", "weak", "weak, held out")
    return (
        number_table(
            "MFCVAE on handwritten digits",
            ("activation", "strong, paper", *mcc, "active latents", "states"),
            whole,
            f"Mean ± standard deviation over {pairs} ordered pairs of {count} trainings.",
        ),
        number_table(
            "Each facet alone",
            ("activation", "facet", "states", "strong", "weak", "weak, held out"),
            alone,
            "MCC of the latents of a facet with those of the same facet of another training; the last is the deepest. "
            "States: the components that the codes separate. Intervals are over trainings.",
        ),
    )


def draw_mcc(ours: Mapping[str, Any]) -> RecipeFigure:
    """Draw strong and weak MCC of every pair, one column for each activation."""
    series = (
        ("strong", -0.2, INK, "s", "strong: without a map"),
        ("weak_held_out", 0.2, HELD_OUT, "o", "weak, held out: up to a linear map"),
    )

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        for place, one in enumerate(ours.values()):
            shift = np.linspace(-0.12, 0.12, len(one["pairs"]))
            for name, away, colour, marker, words in series:
                values = [pair["mcc"][name] for pair in one["pairs"]]
                style = {"color": colour, "markersize": 5, "label": words if place == 0 else None}
                axes.plot(place + away + shift, values, marker, **style)
        axes.set_xticks(range(len(ours)), [ACTIVATIONS[name] for name in ours])
        axes.set(ylabel="MCC of codes", ylim=(0, 1.05), xlim=(-0.6, len(ours) - 0.4))
        axes.grid(axis="y")
        figure.legend(loc="outside upper left", ncols=2)

    summary = [
        f"{ACTIVATIONS[name]}: strong {number(spread_of(one, 'strong').mean)}, weak "
        f"{number(spread_of(one, 'weak').mean)}"
        for name, one in ours.items()
    ]
    return draw_figure(
        "mcc",
        paint,
        (700, 360),
        f"MCC of pairs. {'; '.join(summary)}",
        "Every ordered pair of trainings: codes of test images without a map, and after a linear map fitted on others.",
    )
