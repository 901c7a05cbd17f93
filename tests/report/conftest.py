"""Results made by hand: tests of the report should not need the maths."""

from __future__ import annotations

import html
import itertools
import math
import os
from dataclasses import replace
from html.parser import HTMLParser

import filelock
import numpy as np
import pytest

from congruence.align._consensus import Consensus
from congruence.align._distortion import Distortion
from congruence.align.comparison import Comparison, Pair, PairMCC, PairVerdict, Plane, Run
from congruence.align.layer_comparison import LayerComparison
from congruence.align.similarities import SimilarityScore
from congruence.batches._inference import compare_conditions, compare_folds, correct_targets, estimate_mean
from congruence.batches.deconfounding import Deconfounding, Levels, Target
from congruence.batches.deconfounding import Score as TargetScore
from congruence.batches.leakage import FeatureProfile
from congruence.batches.sparsity import Concentration
from congruence.decoder.bounds import theorem1
from congruence.decoder.examination import DecoderExamination
from congruence.decoder.stretch import BiLipschitz
from congruence.document import share
from congruence.experiments.recipes.recipe import Recipe
from congruence.experiments.recipes.result import RecipeFigure, RecipeResult, number_table
from congruence.features import match_features
from congruence.ica._whitening import Whitening
from congruence.ica.components import Components, Unmixing
from congruence.ica.estimator import ICA
from congruence.ica.profiles import EDGES, ComponentProfile, ComponentProfiles, ExtremeRow
from congruence.ica.resolution import Resolution
from congruence.ica.results import Agreement, ComponentStability, StabilityPoint
from congruence.ica.stability import chance_agreement
from congruence.maps.groups import Map
from congruence.maps.nearness import HeldOut, Nearness
from congruence.mechanism._criteria import Tolerance
from congruence.mechanism.block_check import BlockCheck
from congruence.mechanism.examination import MechanismExamination
from congruence.mechanism.part_curve import TOLERANCES, PartCurve
from congruence.mechanism.profile import BlockProfile, action_graph
from congruence.mechanism.theorems import Theorem, make_criterion
from congruence.metrics._structural import StructuralNearness
from congruence.metrics.evaluation import CodeRow, Evaluation, FactorRow, Score
from congruence.mixture import GaussianMixture
from congruence.mixture._assumptions import Assumptions
from congruence.mixture.agreement import LatentSpace, compare_spaces
from congruence.mixture.conditions import NAMES, CanonicalAxes, Counterexample, make_condition
from congruence.mixture.examination import ExaminedRun, MixtureExamination
from congruence.report.figures.svg import Drawing
from congruence.report.html import render_html
from congruence.result import Finding, conclude
from congruence.translation._unpaired_verdict import judge_matching
from congruence.translation._verdict import ANSWERS
from congruence.translation.certificate import (
    Certificate,
    Containment,
    CurvePoint,
    Drift,
    Probe,
    Retrieval,
    SizePoint,
)
from congruence.translation.result import RowMatching, Translation
from congruence.translation.translator import Translator

VOID = {"meta", "link", "br", "img"}
ERRORS = {
    "identity": 0.31,
    "permutation": 0.24,
    "rigid": 0.021,
    "similarity": 0.0183,
    "ridge": 0.0172,
    "linear": 0.0171,
    "ica": 0.03,
}


class Outline(HTMLParser):
    """Tags that are opened and not closed in order, attributes and visible text of a page."""

    def __init__(self, page):
        super().__init__()
        self.open, self.misplaced, self.attributes, self.text = [], [], [], ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.attributes += [(tag, *attr) for attr in attrs]
        self.text += " " * (tag in ("th", "td", "small"))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.attributes += [(tag, *attr) for attr in attrs]

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.misplaced.append(tag)

    def handle_data(self, data):
        if not {"style", "script"} & set(self.open):
            self.text += data


def nearness_by_hand(group, held_out, null=0.25, rows=400, seed=0):
    rng = np.random.default_rng(seed)
    errors = held_out * rng.gamma(8.0, 1 / 8, size=rows)
    return Nearness(
        group=group,
        mean=0.93 * held_out,
        rms=1.02 * held_out,
        q95=1.7 * held_out,
        sup=2.6 * held_out,
        held_out=HeldOut(held_out, 0.96 * held_out, 1.04 * held_out),
        null=null,
        errors=errors,
        of_chance=HeldOut(*(factor * held_out / null for factor in (1.0, 0.96, 1.04))),
        r2=HeldOut(*(1 - factor * (held_out / null) ** 2 for factor in (1.0, 1.08, 0.92))),
        trimmed=0.98 * held_out / null,
    )


def plane_by_hand(seed=0, shift=0.0):
    rng = np.random.default_rng(seed)
    target = rng.normal(size=(300, 2)) * [3.0, 1.5]
    turn = np.array([[0.0, 1.0], [-1.0, 0.0]])
    return Plane(target, 0.8 * target @ turn + shift, target + rng.normal(size=(300, 2)) * 0.1, 0.62, np.arange(300))


def pair_by_hand(source="old", target="new", scale=1.0, status="holds", seed=0, **changes):
    groups = {name: nearness_by_hand(name, scale * error, seed=seed) for name, error in ERRORS.items()}
    headlines = {
        "holds": "The difference is only a rotation and a scale.",
        "fails": "The difference is more than a rotation and a scale.",
        "ambiguous": "The runs are related, but no map tried here explains their difference.",
        "unknown": "There are too few rows to decide.",
    }
    detail = "Up to rotation and scale, the held-out error is 7.20 % of chance and R² is 0.995."
    fields = {
        "source": source,
        "target": target,
        "n": 400,
        "diameter": 12.345678,
        "diameter_exact": True,
        "groups": groups,
        "mcc": PairMCC(0.41, 0.97),
        "cka": SimilarityScore(0.98, 0.01, 0.98, math.nan),
        "neighbour_overlap": SimilarityScore(0.76, 0.05, 0.75, math.nan),
        "verdict": PairVerdict(
            Finding(f"{source} -> {target}", "Only a rotation and a scale.", status, evidence=detail),
            "similarity",
            headlines[status],
        ),
        "maps": {},
        "plane": plane_by_hand(seed),
        "components": nearness_by_hand("ica", 0.05),
    }
    return Pair(**(fields | changes))


def distortion_by_hand(tested=12, margin=0.1):
    log_gains = 0.2 * np.cos(np.arange(tested))
    errors = np.full(tested, 0.02)
    return Distortion("fails", margin, 0.2, 0.23, 0.23, 0.14, tested, 16, 0.93, 0.5, log_gains, errors)


def comparison_by_hand(names=("old", "new"), pairs=None, notes=(), headlines=None, **changes):
    if pairs is None:
        pairs = [
            pair_by_hand(a, b, 1 + i / 20, ("holds", "fails", "ambiguous", "unknown")[i % 4], seed=i)
            for i, (a, b) in enumerate(itertools.combinations(names, 2))
        ]
    return Comparison(
        runs=[Run(name, 400, 16 + i) for i, name in enumerate(names)],
        pairs=pairs,
        headlines=headlines or (pairs[0].verdict.headline, pairs[0].verdict.finding.evidence),
        notes=tuple(notes),
        settings={"groups": list(ERRORS), "directions": "forward", "normalize": None, "folds": 5, "seed": 0},
        **changes,
    )


def training_by_hand(steps=(1, 10, 100, 1000, 10_000, 100_000), **changes):
    """Checkpoints of one training, each mapped onto the next and onto the last."""
    names = [f"step {step}" for step in steps]
    last = len(steps) - 1
    among = sorted({(k, k + 1) for k in range(last)} | {(k, last) for k in range(last)})
    pairs = [pair_by_hand(names[i], names[j], 1 + (j - i) / 2 + 4 / (1 + i), "fails", seed=i) for i, j in among]
    return comparison_by_hand(names, pairs, steps=[float(step) for step in steps], **changes)


def consensus_by_hand(names, **changes):
    held_out = {name: HeldOut(0.01 * (i + 1), 0.009 * (i + 1), 0.011 * (i + 1)) for i, name in enumerate(names)}
    still = {
        "values": np.zeros((400, 2)),
        "maps": {},
        "errors": {},
        "diameter": 3.2,
        "diameter_exact": True,
        "iterations": 7,
    }
    of_chance = {name: HeldOut(*(part / 0.21 for part in vars(held).values())) for name, held in held_out.items()}
    fields = {"group": "similarity", "of_chance": of_chance, "held_out": held_out, "null": 0.21, "converged": True}
    fields |= still
    return Consensus(**(fields | changes))


def retrieval_by_hand(**changes):
    sizes = [(500, 0.97, False), (1000, 0.965, False), (4000, 0.951, False), (40_000, 0.9, True), (400_000, 0.82, True)]
    fields = {
        "index_size": 4000,
        "queries": 2000,
        "recall_1": HeldOut(0.91, 0.9, 0.92),
        "recall_10": HeldOut(0.951, 0.947, 0.955),
        "itself": 0.993,
        "before": 0.031,
        "chance": 0.0025,
        "containment": (Containment(50, HeldOut(0.991, 0.989, 0.993)), Containment(100, HeldOut(0.997, 0.996, 0.998))),
        "rerank_depth": 47,
        "sizes": tuple(SizePoint(rows, r, r - 0.01, r + 0.01, beyond) for rows, r, beyond in sizes),
        "full": HeldOut(0.83, 0.82, 0.84),
        "full_old": 0.82,
    }
    return Retrieval(**(fields | changes))


def translation_by_hand(status="holds", **changes):
    rows = (10, 23, 55, 129, 303, 711, 1670, 3200)
    recalls = (0.31, 0.52, 0.71, 0.82, 0.9, 0.931, 0.946, 0.951)
    certificate = {
        "retrieval": retrieval_by_hand(),
        "probe": Probe("accuracy", 0.874, 0.861, 0.507, 0.5),
        "curve": [CurvePoint(n, r, r - 0.01, r + 0.01) for n, r in zip(rows, recalls, strict=True)],
        "drift": Drift(0.012, False),
        "relevance": None,
        "by_group": {"rigid": 0.9, "similarity": 0.953, "ridge": 0.954},
    }
    certificate |= {name: changes.pop(name) for name in list(certificate) if name in changes}
    evidence = "With held-out rows, translated vectors find 95 % of the 10 nearest of 4,000 old vectors."
    fields = {
        "translator": Translator(Map("similarity", np.eye(3), np.zeros(3), np.zeros(3)), None, 3, 2),
        "n_old": 4000,
        "n_new": 4000,
        "finding": Finding("retrieval", "Translated vectors find enough.", status, evidence=evidence),
        "headlines": (ANSWERS[status], evidence, "The similarity map explains 99 % of the variance."),
        "notes": (),
        "settings": {"group": "auto", "normalize": None, "require": 0.9, "folds": 5, "seed": 0},
        "candidates": {name: nearness_by_hand(name, ERRORS[name]) for name in ("rigid", "similarity", "ridge")},
        "certificate": Certificate(**certificate),
    }
    return Translation(**(fields | changes))


def unpaired_by_hand(**changes):
    """A translation without paired rows that passes every check."""
    fields = {
        "residual": 0.345,
        "same_model": 0.284,
        "nulls": {"permuted": (0.489, 0.491, 0.487), "rearranged": (0.447, 0.452, 0.441)},
        "agreement": (0.91, 0.85),
        "agreement_within": (0.79, 0.74),
        "rival": 0.404,
        "lead": 20.6,
        "rows": 1392,
        "directions": 64,
        "explained": 0.99,
    }
    matching = RowMatching(**(fields | changes))
    finding, headlines, notes = judge_matching(matching)
    return Translation(
        translator=Translator(Map("linear", np.eye(5), np.zeros(5), np.zeros(5)), None, 5, 4),
        n_old=2000,
        n_new=1800,
        finding=finding,
        headlines=headlines,
        notes=notes,
        settings={"unpaired": True, "starts": 128, "splits": 2, "nulls": 3, "seed": 0},
        matching=matching,
    )


def layers_by_hand(rows=3, columns=3, **changes):
    """A comparison of as many layers as asked, the diagonal nearest."""
    nearness = np.full((rows, columns), 0.2)
    np.fill_diagonal(nearness, 0.01)
    fields = {
        "source": "old & <new>",
        "target": "b",
        "source_layers": [f"layers.{i}" for i in range(rows)],
        "target_layers": [f"$l_{i}$" for i in range(columns)],
        "measure": "similarity",
        "direction": "lower is closer",
        "perfect": 0.0,
        "held_out": True,
        "nearness": nearness,
        "null": np.full((rows, columns), 0.21),
        "p": np.where(nearness < 0.1, 0.05, 1.0),
        "p_layer": np.full(rows, 0.05),
        "n": 50,
        "notes": ("A note.",),
        "settings": {"folds": 5},
    }
    return LayerComparison(**(fields | changes))


def rich_by_hand(names=("seed 1", "seed 2", "seed 10"), **consensus):
    """A comparison with ids, metadata, a consensus and eight rows that moved far more than the others."""
    ids = np.array([f"CHEMBL{i}" for i in range(400)])
    metadata = {"target": np.array(["EGFR", "HER2"] * 200), "logP": np.linspace(-2, 5, 400)}
    comparison = comparison_by_hand(names, ids=ids, metadata=metadata)
    for pair in comparison.pairs:
        for near in pair.groups.values():
            near.errors[:8] = near.held_out.mean * np.arange(16, 8, -1)
    object.__setattr__(comparison, "consensus", consensus_by_hand(names, **consensus))
    return comparison


def components_by_hand(k=6, d=8, **changes):
    """Components of which the last is Gaussian and the last but one depends on the start."""
    error = np.linspace(0.05, 0.1, k)
    error[-1:] = 0.4
    agreement = np.full(k, 0.999)
    agreement[-2:-1] = 0.6
    fields = {
        "mean": np.zeros(d),
        "unmixing": np.eye(k, d),
        "mixing": np.eye(d, k),
        "negentropy": np.geomspace(0.05, 1e-6, k),
        "skewness": np.linspace(2.5, 0, k),
        "kurtosis": np.linspace(9, -1.2, k),
        "sampling_error": error,
        "agreement": agreement,
        "noise": error > 0.2,
        "identified": (error < 0.2) & (agreement > 0.9),
        "converged": True,
        "reason": "converged",
        "changes": tuple(np.geomspace(0.7, 5e-5, 20)),
        "gradients": tuple(np.geomspace(1.5, 4e-4, 20)),
        "switched": 6,
        "n": 4000,
    }
    white = Whitening(np.zeros(d), np.eye(k, d), np.eye(d, k), d - 1, np.geomspace(9, 0.01, d - 1), k, np.ones(d))
    return Components(white, Unmixing(**(fields | changes)), None, None)


def profile_by_hand(seed=0, ids=True):
    rng = np.random.default_rng(seed)
    counts = np.histogram(np.clip(rng.laplace(size=4000) / 2**0.5, -6, 6), EDGES)[0]
    ends = [
        tuple(
            ExtremeRow(
                10 * i, sign * (7 - i), f"mol{10 * i}" if ids else None, {"Metadata_plate": "p1", "logP": 0.5 * i}
            )
            for i in range(5)
        )
        for sign in (1.0, -1.0)
    ]
    return ComponentProfile(counts, *ends)


def stability_by_hand(components, runs=20, curve=(2, 4, 6), seed=0, notes=()):
    rng = np.random.default_rng(seed)
    k = components.unmixing.k
    matched = 1 - rng.beta(1, 60, size=(runs, k)) * np.linspace(0.2, 12, k)
    empty = np.zeros((k, 0))
    return ComponentStability(
        components=components,
        agreement=Agreement(np.zeros((0, k)), np.clip(matched, 0, 1)),
        clusters=None,
        chance=chance_agreement(k),
        variance_share=np.full(k, 1 / k),
        curve=tuple(StabilityPoint(n, 0.9, n, n - 1, math.nan, 0.95, 0.5) for n in curve),
        profile=ComponentProfiles(EDGES, np.ones((k, len(EDGES) - 1)), empty, empty, empty, empty),
        ids=None,
        notes=notes,
        settings={"n": 4000, "restarts": 0, "bootstrap": runs, "clusters": None},
    )


def resolution_by_hand(stable=True, ids=True, settings=None, error_left=None, **changes):
    components = replace(components_by_hand(**changes), error_left=error_left)
    made = {"components": 6, "contrast": "logcosh", "whiten": True, "tol": 1e-4, "seed": 0}
    made["command"] = "congruence resolve 'my run.parquet' --report r.html"
    return Resolution(
        name="my run",
        n=4000,
        d=8,
        ica=ICA.from_components(components),
        profiles=tuple(profile_by_hand(seed, ids) for seed in range(components.unmixing.k)),
        stability=stability_by_hand(components) if stable else None,
        settings=made if settings is None else settings,
    )


def reproduction_by_hand(
    statuses=("holds", "fails", "unknown"), headline="It is so.", notes=("The curve is ours.",), **settings
):
    rows = (("mean", 0.5, 0.25), ("share", None, share(0.12)), ("power", "falls", "n^−0.50"))
    made = {"recipe": "toy", "scale": "smoke", "seed": 3, "device": "cpu", "command": "congruence reproduce toy"}
    return RecipeResult(
        recipe=Recipe("toy", "Is it so?", "A toy.", "Nobody 2026, Table 1", "toy_recipe"),
        headlines=(headline, "It was asked once."),
        findings=tuple(
            Finding(f"claim-{i}", f"Claim {i}.", status, evidence=f"{i} %") for i, status in enumerate(statuses)
        ),
        paper={"mean": 0.5},
        ours={"mean": 0.25},
        tables=(number_table("Means", ("what", "the paper says", "ours"), rows, "Over 10 runs."),),
        figures=(
            RecipeFigure("line", "A line.", Drawing(_many_ticks, (500, 300), "a line from 0 to 1", "toy", panels=True)),
        ),
        notes=notes,
        terms=(("mean", "the sum over the count"),),
        settings=made | settings,
    )


def structural_by_hand(factors, errors=None):
    errors = errors or {"permutation": 0.03, "rigid": 0.028, "similarity": 0.0275, "linear": 0.021}
    groups = {name: nearness_by_hand(name, error) for name, error in errors.items()}
    order = np.arange(len(factors))
    return StructuralNearness(
        tuple(errors), groups, tuple(factors), order, np.ones(len(factors)), (), 4.2, {}, reasons={}, notes=()
    )


def own_code_by_hand(nmi, i, names):
    """The code with three times as much information about the factor as about any other; share and leakage."""
    others = np.delete(nmi, i, axis=0).max(0, initial=0.0)
    pure = (nmi[i] >= 0.1) & (nmi[i] >= 3 * others)
    best = int(np.argmax(np.where(pure, nmi[i], -1.0)))
    return (names[best], 0.9, 0.1) if pure.any() else ("", 0.4, 0.8)


def evaluation_by_hand(shares=None, values=None, **changes):
    """Codes against factors: two factors with codes of their own, one that is lost, and a code that tells nothing.

    `shares` is the information (K, L) of each code; a code tells of the factor it knows best, if that is over 0.05.
    `values` are the factors of some rows (m, K); what is left of a code's share is noise.
    """
    nmi = np.array([[0.01, 0.9, 0.02], [0.8, 0.03, 0.01], [0.02, 0.01, 0.02]] if shares is None else shares)
    k, codes = nmi.shape
    rng = np.random.default_rng(0)
    values = (
        np.column_stack([rng.uniform(size=(120, 1)), rng.integers(0, 3, (120, k - 1))]) if values is None else values
    )
    factors = changes.pop("factors", tuple(["size", "shape", "hue", "x", "y", "z"][:k]))
    names = changes.pop("codes", tuple(f"z{j}" for j in range(codes)))
    told, tells = nmi.max(1) > 0.05, nmi.max(0) > 0.05
    z = values @ nmi + (1 - np.minimum(nmi.max(0), 1)) * rng.normal(size=(len(values), codes))
    kinds = ["continuous", *["categorical"] * k][:k]
    best = [names[j] if yes else "" for j, yes in zip(nmi.argmax(1), told, strict=True)]
    fields = {
        "name": "my model",
        "n": 5000,
        "codes": names,
        "factors": factors,
        "scores": (
            Score("infomec", "infom", 0.91, 0.89, 0.93, 0.12, (-math.inf, 1.0), "higher is better"),
            Score("infomec", "infoe", 0.62, 0.6, 0.64, 0.65, (-math.inf, 1.0), "higher is better"),
            Score(
                "mig", "mig", math.nan, math.nan, math.nan, math.nan, (0.0, 1.0), "higher is better", "Only one code."
            ),
            Score("irs", "irs", -0.2, math.nan, math.nan, 0.3, (-1.0, 1.0), "higher is better"),
            Score("unsupervised", "total_correlation", 0.02, 0.01, 0.05, 0.5, (0.0, math.inf), "lower is better"),
        ),
        "matrices": {"nmi": nmi, "correlation": -nmi},
        "per_factor": tuple(
            FactorRow(
                *(name, kinds[i], 3, best[i], nmi[i].max(), np.sort(nmi[i])[-2:][0], 0.8, 0.9, bool(told[i])),
                *own_code_by_hand(nmi, i, names),
            )
            for i, name in enumerate(factors)
        ),
        "per_code": tuple(
            CodeRow(name, factors[nmi[:, j].argmax()] if tells[j] else "", nmi[:, j].max(), 0.9, True, not tells[j])
            for j, name in enumerate(names)
        ),
        "order": tuple(dict.fromkeys([*nmi.argmax(1).tolist(), *range(codes)])),
        "structural": structural_by_hand(factors),
        "sensitivity": ({"bins": 10, "mig": 0.51}, {"bins": 20, "mig": 0.48}),
        "sample": (z, values),
        "levels": {factors[-1]: ("round", "square", "heart")} if k > 1 else {},
        "notes": ("hue was cut into 10 bins of equal width.",),
        "settings": {"seed": 0, "command": "congruence evaluate codes.parquet --report r.html"},
    }
    return Evaluation(**(fields | changes))


AUROC = np.array([0.7, 0.6, 0.8, 0.7, 0.65])  # of the embedding as it is, in five folds
GAINS = {"whitened": np.zeros(5), "ica": np.array([0.05, 0.06, 0.04, 0.05, 0.07]), "rotated": np.full(5, -0.01)}


def _target(name, gains):
    scores = {"base": _score("base", AUROC)}
    scores |= {condition: _score(condition, AUROC + gain) for condition, gain in gains.items()}
    experiments = tuple(("", fold) for fold in range(5))
    target = Target(name, (), 40, experiments, ("",) * 5, 7, 3, scores, {})
    paired = {one: compare_folds((target,), one, "base", "folds") for one in gains}
    scores = {
        one: replace(score, error=estimate_mean((target,), one, None, "folds").error) for one, score in scores.items()
    }
    return Target(**(vars(target) | {"paired": paired, "scores": scores}))


def _score(name, auroc):
    draws = np.array([0.1, 0.2, 0.3]) if name == "rotated" else np.array([auroc.mean()])
    return TargetScore(name, auroc, auroc - 0.01, np.full(5, 0.3), (Concentration(0.25, auroc, auroc - 0.1),), draws)


def deconfounding_by_hand(gains=GAINS, names=("MTOR", "PLK1"), **changes):
    targets = correct_targets([_target(name, gains) for name in names])
    conditions = ("base", *gains)
    levels = {one: Levels(one, np.full(5, 0.4), np.full(5, 0.1)) for one in conditions}
    rng = np.random.default_rng(0)
    shown = {
        one: FeatureProfile(one, rng.uniform(size=9), rng.uniform(size=(2, 9)), np.full(2, 0.1), 0.12, 0.3)
        for one in conditions
    }
    overall = compare_conditions(targets, conditions, "folds")[0]
    settings = {"protocol": "folds", "reading": "difference", "command": "congruence deconfound wells.parquet"}
    made = {"name": "wells", "n": 600, "d": 9, "batches": 10, "controls": 300, "conditions": conditions}
    made |= {"targets": targets, "skipped": {"SRC": "it has 2 rows, fewer than 5"}, "overall": overall}
    made |= {"leakage": levels, "retrieval": levels, "profiles": shown, "notes": ("A note.",), "settings": settings}
    return Deconfounding(**(made | changes))


def decoder_by_hand():
    """A decoder at 30 points, one of which loses a direction."""
    low, high = np.linspace(0.4, 0.9, 30), np.linspace(1.1, 1.6, 30)
    low[3] = 0.0
    stretch = BiLipschitz(low, high, np.column_stack([high, low]), "exact", 2, 5, notes=("Only 30 points.",))
    convex = Finding("convex", "The latents fill a convex set.", "unknown", evidence="5.0 % lie in holes.")
    finding = conclude("theorem1", "Two trainings differ by a rigid motion.", (convex,))
    similar = conclude("theorem1_similarity", "Two trainings differ by a similarity.", (convex,))
    bounds = {group: theorem1(stretch, 4.0, up_to=group) for group in ("rigid", "similarity")}
    return DecoderExamination(stretch, bounds, finding, similar, 4.0, "given", stretch.notes, {"seed": 0})


def _theorems_by_hand():
    fails = Finding("premise0", "Premise 0 holds.", "fails")
    holds, assumed = (
        Finding("premise0", "Premise 0 holds.", "holds"),
        Finding("premise1", "Premise 1 holds.", "unknown"),
    )
    return (
        Theorem(2, "D", conclude("theorem2_D", "Theorem 2 identifies the blocks.", (fails,))),
        Theorem(3, "M_coord", conclude("theorem3_M_coord", "Theorem 3 does.", (holds, assumed)), ("premise1",)),
    )


def mechanism_by_hand(*, shape=(6,), theorems=None, discovery=None, effects=None):
    blocks = ((0, 1), (2,))
    jacobian = np.array([[1.0, 0.5, 0], [0.3, 2, 0], [1, 1, 0], [0, 0, 1], [0, 0, 2], [0, 0.01, 1]])
    k = len(blocks)
    if effects is None:
        effects = np.stack([np.linalg.norm(jacobian[:, list(b)], axis=1) for b in blocks])
    profile = BlockProfile(
        blocks=blocks,
        effects=effects,
        overlap=np.where(np.eye(k, dtype=bool), 1.0, 0.03),
        shared=np.full((k, k), 2),
        near=np.full((3, 3), 0.5),
        graph=action_graph(jacobian),
        output_shape=shape,
        points=8,
    )
    check = BlockCheck(
        blocks=blocks,
        points=8,
        dimension=3,
        outputs=6,
        output_shape=shape,
        bending="smooth",
        criteria=tuple(
            make_criterion(name, status, margin, "a share", 3, 0.5, 8, remarks=("a remark",))
            for name, status, margin in (("D", "ambiguous", 0.25), ("M_coord", "holds", 0.0), ("H4", "unknown", 0.25))
        ),
        irreducible=(),
        separable=(),
        theorems=theorems or _theorems_by_hand(),
        tolerance=Tolerance(1e-6, 0.0, "global", 1e-7, 1e-2),
        injective="holds",
        nonzeros=(8, 9),
        contrast=0.1,
        rho=(5, 7),
        overlap=np.zeros((k, k)),
        sizes=np.abs(jacobian),
    )
    settings = {"command": "congruence mechanism <model>", "seed": 0}
    origin = "given" if discovery is None else "D"
    one = np.ones(len(TOLERANCES), dtype=int)
    curve = PartCurve(TOLERANCES, np.where(TOLERANCES > 0.01, 2, one), one, 2 * one, one, 8)
    return MechanismExamination(check, profile, curve, discovery, origin, ("Supports are uncertain.",), settings)


def _many_ticks(figure):
    axes = figure.subplots()
    axes.set(xticks=np.linspace(0, 1, 11), yticks=np.linspace(0, 1, 11))
    axes.plot([0, 1])


def page_of(result):
    return render_html(result.document())


def page_without_figures(result):
    """The page with empty figures: matplotlib takes nearly all of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Drawing, "svg", lambda self, hover=False: f'<svg aria-label="{html.escape(self.label)}"></svg>')
        return page_of(result)


def assumptions_by_hand(**statuses):
    """Assumptions that hold unless said otherwise; F4 fails with a pair of latents."""
    pair = Counterexample(np.array([1.0, 2.0]), np.array([-1.0, 0.5]), 1e-12, 2.5)
    found = {name: make_condition(name, statuses.get(name, "holds"), f"Evidence on {name}.") for name in NAMES}
    if statuses.get("F4") == "fails":
        found["F4"] = make_condition("F4", "fails", "Two meet.", exact=True, pair=pair)
    axes = CanonicalAxes(np.eye(2), (0, 1), np.array([5.0, 0.75]), 1.9, 0.0, "given", found["P2"].status, found["P2"])
    distinct = Finding("distinct", "No two components of the prior are equal.", "holds")
    return Assumptions(found, axes, None, distinct, noise="known")


def mixture_by_hand(*found, matrix=((2.0, 0.3), (0.0, 1.0)), priors=True):
    """Runs whose latent spaces are linear images of each other, with these assumptions."""
    prior = GaussianMixture.from_arrays([0.5, 0.5], [[0.0, 0.0], [3.0, 1.0]], [[1.0, 0.3], [0.2, 0.4]])
    z = prior.sample(80)
    moved = [np.linalg.matrix_power(np.array(matrix), i) for i in range(len(found))]
    spaces = [LatentSpace(f"run<{i}>", z @ one.T, prior.pushed(one) if priors else None) for i, one in enumerate(moved)]
    runs = tuple(ExaminedRun(one.name, "vade", 2, 2.0, a) for one, a in zip(spaces, found, strict=True))
    together = compare_spaces(spaces) if len(spaces) > 1 else None
    settings = {"seed": 0, "command": "do it"}
    return MixtureExamination(runs, together, tuple(spaces), spaces[0].states, "arm", ("One note.",), settings)


def checked_by_hand():
    """A check of one pair against a baseline, with rows coloured by a column."""
    made = comparison_by_hand(ids=np.array([f"<b>{i}</b>" for i in range(400)]), metadata={"plate": np.arange(400) % 9})
    settings = {**made.settings, "allow": "identity", "color": "plate"}
    return replace(made, color=made.metadata["plate"], settings=settings)


def features_matched():
    rng = np.random.default_rng(0)
    shared = rng.normal(size=(20, 16))
    runs = [np.vstack([shared, rng.normal(size=(10, 16))]) for _ in range(2)]
    return match_features(*runs, aligned=True)


RESULTS = {  # of every verb; what all results and their pages promise is tested on each of these
    "comparison": lambda: comparison_by_hand(("seed 1", "seed 2", "seed 10")),
    "check": lambda: checked_by_hand(),
    "features": lambda: features_matched(),
    "rich": lambda: rich_by_hand(),
    "training": lambda: training_by_hand((0, 1, 1000)),
    "deconfounding": lambda: deconfounding_by_hand(),
    "decoder": lambda: decoder_by_hand(),
    "mechanism": lambda: mechanism_by_hand(),
    "layers": lambda: layers_by_hand(source="a"),
    "translation": lambda: translation_by_hand(),
    "unpaired": lambda: unpaired_by_hand(),
    "resolution": lambda: resolution_by_hand(),
    "fitted once": lambda: resolution_by_hand(stable=False),
    "stability": lambda: stability_by_hand(components_by_hand(), notes=("A note.",)),
    "evaluation": lambda: evaluation_by_hand(),
    "mixture": lambda: mixture_by_hand(assumptions_by_hand(F4="fails")),
    "mixtures": lambda: mixture_by_hand(assumptions_by_hand(P2="fails", P3="unknown"), assumptions_by_hand(), None),
    "reproduction": lambda: reproduction_by_hand(),
}


@pytest.fixture(scope="session", params=list(RESULTS))
def make_result(request):
    """Builds one result of a verb."""
    return RESULTS[request.param]


@pytest.fixture(scope="session", params=list(RESULTS))
def result_name(request):
    return request.param


@pytest.fixture(scope="session")
def results():
    return RESULTS


@pytest.fixture(scope="session")
def render():
    return page_without_figures


@pytest.fixture(scope="session")
def render_figures():
    return page_of


@pytest.fixture(scope="session")
def page_file(tmp_path_factory):
    """The page of each of `RESULTS` as a file, rendered once for all processes of the test run."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "pages"
    folder.mkdir(exist_ok=True)

    def find(name):
        path = folder / f"{name}.html"
        with filelock.FileLock(folder / "lock"):
            if not path.exists():
                RESULTS[name]().report(path)
        return path

    return find


@pytest.fixture(scope="session")
def outline():
    return Outline


@pytest.fixture(scope="session", params=list(RESULTS))
def any_page(request, page_file):
    return page_file(request.param).read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def make_mechanism():
    return mechanism_by_hand


@pytest.fixture(scope="session")
def make_assumptions():
    return assumptions_by_hand


@pytest.fixture(scope="session")
def make_mixture():
    return mixture_by_hand


@pytest.fixture(scope="session")
def make_nearness():
    return nearness_by_hand


@pytest.fixture(scope="session")
def make_distortion():
    return distortion_by_hand


@pytest.fixture(scope="session")
def make_plane():
    return plane_by_hand


@pytest.fixture(scope="session")
def make_pair():
    return pair_by_hand


@pytest.fixture(scope="session")
def make_comparison():
    return comparison_by_hand


@pytest.fixture(scope="session")
def make_training():
    return training_by_hand


@pytest.fixture(scope="session")
def make_rich():
    return rich_by_hand


@pytest.fixture(scope="session")
def make_retrieval():
    return retrieval_by_hand


@pytest.fixture(scope="session")
def make_translation():
    return translation_by_hand


@pytest.fixture(scope="session")
def make_unpaired():
    return unpaired_by_hand


@pytest.fixture(scope="session")
def make_layers():
    return layers_by_hand


@pytest.fixture(scope="session")
def make_resolution():
    return resolution_by_hand


@pytest.fixture(scope="session")
def make_reproduction():
    return reproduction_by_hand


@pytest.fixture(scope="session")
def make_deconfounding():
    return deconfounding_by_hand


@pytest.fixture(scope="session")
def make_evaluation():
    return evaluation_by_hand


@pytest.fixture(scope="session")
def pair():
    return pair_by_hand()


@pytest.fixture
def comparison():
    return comparison_by_hand()


@pytest.fixture(scope="session")
def three():
    return comparison_by_hand(("seed 1", "seed 2", "seed 10"))


@pytest.fixture
def undefined():
    """A comparison without null, interval or errors of rows."""
    nan = math.nan
    bare = Nearness("similarity", 0.1, 0.1, 0.1, 0.1, HeldOut(0.1, nan, nan), nan, np.full(4, nan))
    changes = {"groups": {"similarity": bare}, "mcc": PairMCC(0.1, nan), "components": None}
    return comparison_by_hand(pairs=[pair_by_hand(status="unknown", **changes)])
